// Functions that store the arguments of a collective in a Call. A program can perform a collective by a blocking,
// asynchronous or persistent call, or in a group. All these forms of one collective use the same function of this file.
#pragma once

#include "core/call.hpp"

namespace collectives {

/// Describes a collective that reduces nothing. `root`: 0 if the collective has none.
inline Call call_of(Collective collective, ConstBuffer input, Buffer output, Rank root = 0) {
  return {.collective = collective, .input = input, .output = output, .root = root};
}

/// Describes a collective that reduces. `root`: 0 if the collective has none.
inline Call reduction_of(Collective collective, ConstBuffer input, Buffer output, ReduceOp op, Rank root = 0) {
  return {.collective = collective, .input = input, .output = output, .op = op, .root = root};
}

/// Describes a collective whose parts differ in length, such as all_gather_v(). `parts`: positions and lengths of the
/// parts.
inline Call call_of(Collective collective, ConstBuffer input, Buffer output, const PartLayout& parts, Rank root = 0) {
  return {.collective = collective,
          .input = input,
          .output = output,
          .root = root,
          .counts = parts.counts,
          .displacements = parts.displacements,
          .has_counts = true};
}

inline Call reduce_scatter_v_of(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op) {
  Call call = call_of(Collective::reduce_scatter, input, output, parts);
  call.op = op;
  return call;
}

inline Call all_to_all_v_of(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                            const PartLayout& output_parts) {
  Call call = call_of(Collective::all_to_all, input, output, output_parts);
  call.input_parts = input_parts;
  return call;
}

}  // namespace collectives
