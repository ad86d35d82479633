// Functions that return why NCCL, NVIDIA's library for collectives between GPUs, cannot perform a reduction.
//
// NCCL's own reductions do not always have the result that ReduceOp promises. For example, they may lose a NaN. For
// these reductions, NCCL can still carry the unreduced values of all ranks. A kernel of this library then reduces the
// values. A kernel reads the values of at most kKernelSources = 256 ranks. With more ranks, such a reduction is not
// possible with NCCL.
#include "planning/device_capabilities.hpp"

#include <fmt/format.h>

namespace collectives {

std::string why_no_native_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic) {
  using Kind = ReduceOp::Kind;
  const Kind kind = op.kind();
  const bool extreme = kind == Kind::min || kind == Kind::max, floating = is_floating(type);
  const bool complex = class_of(type) == TypeClass::complex;
  if (kind > Kind::user) return fmt::format("NCCL has no {}", to_string(kind));
  if (type == DataType::boolean || type == DataType::i16 || type == DataType::u16 || (complex && kind == Kind::product))
    return fmt::format("NCCL has no {} of {}", to_string(kind), to_string(type));
  if (floating && extreme) return "NCCL's min and max let NaN get lost and do not order -0 below +0";
  if (floating && size_of(type) <= 2)
    return fmt::format("NCCL rounds {}-bit floats at every hop, not once", 8 * size_of(type));
  if (class_of(type) == TypeClass::integer && kind == Kind::average)
    return "NCCL divides integer sums that have wrapped";
  if ((floating || complex) && deterministic)
    return "NCCL adds in an order of its own, which depends on count and topology";
  return {};
}

std::string why_no_nccl_reduction(const ReduceOp& op, DataType type, bool deterministic, int ranks) {
  if (op.kind() == ReduceOp::Kind::user) return "a GPU calls no functions of the program's own";
  const std::string why = why_no_native_nccl_reduction(op, type, deterministic);
  if (!why.empty() && static_cast<std::size_t>(ranks) > kKernelSources)
    return fmt::format("{}, and a kernel folds the contributions of at most {} ranks", why, kKernelSources);
  return {};
}

}  // namespace collectives
