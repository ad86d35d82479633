#include "core/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/plan.hpp"
#include "core/collective.hpp"

namespace collectives {
namespace {

[[noreturn]] void refuse(const Call& call, Rank rank, const std::string& why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", to_string(call.collective), why), rank, kNoRank,
              std::string(to_string(call.collective)));
}

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

}  // namespace

void check_vocabulary(const Call& call, Rank rank) {
  if (static_cast<std::size_t>(call.collective) >= std::size(kCollectives)) refuse(call, rank, "no such collective");
  for (const DataType type : {call.input.type, call.output.type})
    if (static_cast<std::size_t>(type) >= std::size(kDataTypes))
      refuse(call, rank, fmt::format("no such type: {}", static_cast<int>(type)));
  if (call.op.kind() > ReduceOp::Kind::user)
    refuse(call, rank, fmt::format("no such op: {}", static_cast<int>(call.op.kind())));
}

Sides sides_of(const Call& call, Rank rank) noexcept {
  if (call.collective == Collective::barrier) return {};
  return {.input = call.collective != Collective::broadcast || rank == call.root,
          .output = call.collective != Collective::reduce || rank == call.root};
}

void check_arguments(const Call& call, Rank rank, int size) {
  check_vocabulary(call, rank);
  const auto p = static_cast<std::size_t>(size);
  const auto self = static_cast<std::size_t>(rank);
  const auto bad = [&](const std::string& why) { refuse(call, rank, why); };
  const auto whole_bytes = [&](std::size_t count, DataType type) {
    if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(type))
      bad(fmt::format("{} elements of {} overflow the address space", count, to_string(type)));
    return count * size_of(type);
  };
  const auto not_null = [&](const void* data, std::size_t count, const char* which) {
    if (data == nullptr && count > 0) bad(fmt::format("{} is null with {} elements", which, count));
  };
  if (call.collective == Collective::barrier) return;

  const bool at_root = rank == call.root;
  if (call.collective == Collective::broadcast || call.collective == Collective::reduce)
    if (call.root < 0 || call.root >= size) bad(fmt::format("root {} is not a rank of 0 to {}", call.root, size - 1));
  const auto [has_input, has_output] = sides_of(call, rank);
  const std::size_t in_bytes = has_input ? whole_bytes(call.input.count, call.input.type) : 0;
  const std::size_t out_bytes = has_output ? whole_bytes(call.output.count, call.output.type) : 0;
  if (has_input) not_null(call.input.data, call.input.count, "input");
  if (has_output) not_null(call.output.data, call.output.count, "output");
  if (has_input && has_output && call.input.type != call.output.type)
    bad(fmt::format("input is {}, output is {}", to_string(call.input.type), to_string(call.output.type)));
  if (reduces(call.collective)) {
    if (!supports(call.input.type, call.op))
      bad(fmt::format("{} has no {}", to_string(call.input.type), to_string(call.op.kind())));
    if (call.op.kind() == ReduceOp::Kind::user && (call.op.user_op() == nullptr || !call.op.user_op()->combine))
      bad("the user op has no function");
  }

  // Shapes: the number of elements of one buffer, and its position in the other one if the call is in place.
  std::size_t first = 0;  // element of the larger buffer at which this rank's part begins
  const auto parts_of = [&](const ConstBuffer& whole, const ConstBuffer& mine, const char* whole_name,
                            const char* mine_name) {
    if (!call.has_counts) {
      if (mine.count > std::numeric_limits<std::size_t>::max() / p) bad("the counts of all ranks overflow");
      if (whole.count != mine.count * p)
        bad(fmt::format("{} has {} elements, {} has {}: it must be {} ranks times as many", mine_name, mine.count,
                        whole_name, whole.count, p));
      first = self * mine.count;
      return;
    }
    if (call.counts.size() != p) bad(fmt::format("{} counts for {} ranks", call.counts.size(), p));
    std::size_t total = 0;
    for (std::size_t r = 0; r < p; ++r) {
      if (call.counts[r] > std::numeric_limits<std::size_t>::max() - total) bad("the counts overflow");
      if (r == self) first = total;
      total += call.counts[r];
    }
    if (mine.count != call.counts[self])
      bad(fmt::format("{} has {} elements, counts[{}] is {}", mine_name, mine.count, rank, call.counts[self]));
    if (whole.count != total)
      bad(fmt::format("{} has {} elements, the counts add up to {}", whole_name, whole.count, total));
  };
  auto in_place = reinterpret_cast<std::uintptr_t>(call.input.data);  // address at which the output must begin to be in
                                                                      // place
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      if (has_output && call.input.count != call.output.count)
        bad(fmt::format("input has {} elements, output has {}", call.input.count, call.output.count));
      break;
    case Collective::broadcast:
      if (at_root && call.input.count != call.output.count)
        bad(fmt::format("input has {} elements, output has {}", call.input.count, call.output.count));
      break;
    case Collective::reduce_scatter:
      parts_of(call.input, call.output, "input", "output");
      in_place += first * size_of(call.input.type);
      break;
    case Collective::all_gather:
      parts_of(call.output, call.input, "output", "input");
      in_place -= first * size_of(call.input.type);
      break;
    case Collective::barrier: break;
  }
  if (has_input && has_output && reinterpret_cast<std::uintptr_t>(call.output.data) != in_place &&
      overlap(call.input.data, in_bytes, call.output.data, out_bytes))
    bad("input and output overlap without being in place");
}

const Codec* codec_of(const WireFormat& wire, const Call& call, Rank rank) {
  const bool as_it_is = wire.codec() == nullptr && !wire.as_type();
  if (as_it_is || call.collective == Collective::barrier) return nullptr;
  const DataType type = call.collective == Collective::reduce_scatter || call.collective == Collective::reduce
                            ? call.input.type
                            : call.output.type;
  if (wire.as_type() && wire.type() == type) return nullptr;
  const Codec* codec = wire.codec() != nullptr         ? wire.codec()
                       : wire.type() == DataType::bf16 ? &bf16_codec()
                       : wire.type() == DataType::f16  ? &f16_codec()
                                                       : nullptr;
  if (codec == nullptr)
    refuse(call, rank,
           fmt::format("nothing travels as {}; a wire may be bf16, f16, or a codec", to_string(wire.type())));
  if (type != DataType::f32)
    refuse(call, rank, fmt::format("wire {} carries f32, not {}", codec->name(), to_string(type)));
  return codec;
}

void check_compressor(const Call& call, std::string_view name, Rank rank) {
  if (call.collective != Collective::all_reduce) refuse(call, rank, "a compressor is for all_reduce only");
  if (call.output.type != DataType::f32)
    refuse(call, rank, fmt::format("a compressor is for f32, not {}", to_string(call.output.type)));
  if (call.op.kind() != ReduceOp::Kind::sum && call.op.kind() != ReduceOp::Kind::average)
    refuse(call, rank, fmt::format("a compressor is for sum and average, not {}", to_string(call.op.kind())));
  for (const void* data : {call.input.data, static_cast<const void*>(call.output.data)})
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0)
      refuse(call, rank, "a compressor needs buffers that are aligned as floats are");
  if (name.empty()) refuse(call, rank, "a compressor needs the tensor's name, under which it keeps the residual");
}

Signature sign(const Call& call, Rank rank, std::string_view backend, bool deterministic, const WireName& wire,
               bool force) {
  Signature signature;
  signature.collective = call.collective;
  signature.deterministic = deterministic;
  if (backend != "auto") {
    static const std::vector<std::string_view> known = backend_names();
    const auto found = std::find(known.begin(), known.end(), backend);
    if (found == known.end())
      refuse(call, rank, fmt::format("unknown backend \"{}\"; known: {}", backend, fmt::join(known, ", ")));
    signature.backend = static_cast<std::uint8_t>(found - known.begin());
  }
  if (call.collective == Collective::barrier) return signature;
  signature.memory = call.memory;
  const bool from_input = call.collective == Collective::reduce_scatter || call.collective == Collective::reduce;
  signature.count = from_input ? call.input.count : call.output.count;
  signature.type = from_input ? call.input.type : call.output.type;
  signature.root = call.root;
  if (reduces(call.collective)) {
    signature.op = call.op.kind();
    if (call.op.kind() == ReduceOp::Kind::pre_scaled_sum)
      signature.op_detail = std::bit_cast<std::uint64_t>(call.op.factor());
    if (const UserOp* user = call.op.user_op())
      signature.op_detail = hash_bytes(user->name.data(), user->name.size(), user->commutative ? 1 : 2);
  }
  signature.wire = wire;
  signature.force = force && !(wire == WireName());
  signature.counts_hash = call.layout;
  if (call.has_counts) {
    signature.has_counts = true;
    signature.counts_hash = hash_bytes(call.counts.data(), call.counts.size_bytes());
  }
  return signature;
}

}  // namespace collectives
