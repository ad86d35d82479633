// Implementation of the checks of a call's arguments, and of sign(), which computes the signature of a call. The
// signature holds the arguments on which all ranks must agree. A rank checks its arguments by itself, before it sends
// anything.
//
// In a reduce-scatter, the input is divided among the ranks. In an all-gather, the output is divided. The part of a
// rank is its range of the divided vector.
#include "core/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
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

namespace {

/// Returns the number of bytes of a buffer of `count` elements. Refuses the call if std::ptrdiff_t cannot hold it.
std::size_t bytes_of(const Call& call, Rank rank, std::size_t count, DataType type) {
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(type))
    refuse(call, rank, fmt::format("{} elements of {} overflow the address space", count, to_string(type)));
  return count * size_of(type);
}

void check_not_null(const Call& call, Rank rank, const ConstBuffer& buffer, const char* name) {
  if (buffer.data == nullptr && buffer.count > 0)
    refuse(call, rank, fmt::format("{} is null with {} elements", name, buffer.count));
}

/// Checks that the type supports the op, and that a user op has a function.
void check_op(const Call& call, Rank rank) {
  if (!supports(call.input.type, call.op))
    refuse(call, rank, fmt::format("{} has no {}", to_string(call.input.type), to_string(call.op.kind())));
  if (call.op.kind() == ReduceOp::Kind::user && (call.op.user_op() == nullptr || !call.op.user_op()->combine))
    refuse(call, rank, "the user op has no function");
}

/// Number of elements of a buffer, and the name of the buffer in error messages.
struct NamedCount {
  const char* name;
  std::size_t count;
};

/// Checks the element of a user op, and that all counts of the call are whole elements. `counts` are those of the
/// buffers that the rank uses.
void check_elements(const Call& call, Rank rank, std::initializer_list<NamedCount> counts) {
  const DataType type = call.input.type;
  const std::size_t bytes = element_bytes_of(type, call.op), each = bytes / size_of(type);
  if (bytes == size_of(type)) return;
  const std::string& name = call.op.user_op()->name;
  if (bytes % size_of(type) != 0 || bytes > UserOp::kMaxElementBytes)
    refuse(call, rank,
           fmt::format("element_bytes of user op \"{}\" is {}: it must be a multiple of {}, the bytes of {}, up to {}",
                       name, bytes, size_of(type), to_string(type), UserOp::kMaxElementBytes));
  const auto check = [&](std::size_t count, const auto& text_of_name) {
    if (count % each != 0)
      refuse(
          call, rank,
          fmt::format("{} has {} elements of {}, which is no multiple of {}: an element of user op \"{}\" has {} bytes",
                      text_of_name(), count, to_string(type), each, name, bytes));
  };
  for (const NamedCount& one : counts) check(one.count, [&] { return one.name; });
  for (std::size_t r = 0; r < call.counts.size(); ++r)
    check(call.counts[r], [r] { return fmt::format("counts[{}]", r); });
}

/// Checks that input and output have the same number of elements.
void check_equal_counts(const Call& call, Rank rank) {
  if (call.input.count != call.output.count)
    refuse(call, rank, fmt::format("input has {} elements, output has {}", call.input.count, call.output.count));
}

/// Checks that `whole` has exactly `ranks` times as many elements as `mine`. Returns the element of `whole` at which
/// this rank's part begins.
std::size_t check_equal_parts(const Call& call, Rank rank, std::size_t ranks, const NamedCount& whole,
                              const NamedCount& mine) {
  if (mine.count > std::numeric_limits<std::size_t>::max() / ranks)
    refuse(call, rank, "the counts of all ranks overflow");
  if (whole.count != mine.count * ranks)
    refuse(call, rank,
           fmt::format("{} has {} elements, {} has {}: it must be {} ranks times as many", mine.name, mine.count,
                       whole.name, whole.count, ranks));
  return static_cast<std::size_t>(rank) * mine.count;
}

/// Checks the lengths of both buffers against the call's list of counts, which has one count per rank. Returns the
/// element of `whole` at which this rank's part begins.
std::size_t check_counts(const Call& call, Rank rank, std::size_t ranks, const NamedCount& whole,
                         const NamedCount& mine) {
  const auto self = static_cast<std::size_t>(rank);
  if (call.counts.size() != ranks) refuse(call, rank, fmt::format("{} counts for {} ranks", call.counts.size(), ranks));
  std::size_t first = 0, total = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    if (call.counts[r] > std::numeric_limits<std::size_t>::max() - total) refuse(call, rank, "the counts overflow");
    if (r == self) first = total;
    total += call.counts[r];
  }
  if (mine.count != call.counts[self])
    refuse(call, rank,
           fmt::format("{} has {} elements, counts[{}] is {}", mine.name, mine.count, rank, call.counts[self]));
  if (whole.count != total)
    refuse(call, rank, fmt::format("{} has {} elements, the counts add up to {}", whole.name, whole.count, total));
  return first;
}

/// Checks the lengths of both buffers of a call. `whole` holds the parts of all ranks, `mine` holds this rank's part.
/// Returns the element of `whole` at which the part of this rank begins.
std::size_t check_parts(const Call& call, Rank rank, int size, const NamedCount& whole, const NamedCount& mine) {
  const auto check = call.has_counts ? &check_counts : &check_equal_parts;
  return check(call, rank, static_cast<std::size_t>(size), whole, mine);
}

/// Checks the lengths of input and output. Returns the only address at which the output may overlap the input.
std::uintptr_t check_shape(const Call& call, Rank rank, int size) {
  const auto input = reinterpret_cast<std::uintptr_t>(call.input.data);
  const NamedCount in{"input", call.input.count}, out{"output", call.output.count};
  const std::size_t element = size_of(call.input.type);
  switch (call.collective) {
    case Collective::all_reduce: check_equal_counts(call, rank); break;
    case Collective::reduce:
    case Collective::broadcast:
      if (rank == call.root) check_equal_counts(call, rank);
      break;
    case Collective::reduce_scatter: return input + check_parts(call, rank, size, in, out) * element;
    case Collective::all_gather: return input - check_parts(call, rank, size, out, in) * element;
    case Collective::barrier: break;
  }
  return input;
}

}  // namespace

void check_arguments(const Call& call, Rank rank, int size) {
  check_vocabulary(call, rank);
  if (call.collective == Collective::barrier) return;
  if (call.collective == Collective::broadcast || call.collective == Collective::reduce)
    if (call.root < 0 || call.root >= size)
      refuse(call, rank, fmt::format("root {} is not a rank of 0 to {}", call.root, size - 1));

  const auto [has_input, has_output] = sides_of(call, rank);
  const std::size_t in_bytes = has_input ? bytes_of(call, rank, call.input.count, call.input.type) : 0;
  const std::size_t out_bytes = has_output ? bytes_of(call, rank, call.output.count, call.output.type) : 0;
  if (has_input) check_not_null(call, rank, call.input, "input");
  if (has_output) check_not_null(call, rank, call.output, "output");
  if (has_input && has_output && call.input.type != call.output.type)
    refuse(call, rank,
           fmt::format("input is {}, output is {}", to_string(call.input.type), to_string(call.output.type)));
  if (reduces(call.collective)) check_op(call, rank);

  const std::uintptr_t in_place = check_shape(call, rank, size);
  if (reduces(call.collective))
    check_elements(call, rank,
                   {{"input", has_input ? call.input.count : 0}, {"output", has_output ? call.output.count : 0}});
  if (has_input && has_output && reinterpret_cast<std::uintptr_t>(call.output.data) != in_place &&
      overlap(call.input.data, in_bytes, call.output.data, out_bytes))
    refuse(call, rank, "input and output overlap without being in place");
}

void check_name(const Call& call, std::string_view name, Rank rank) {
  if (name.size() > kLongestName)
    refuse(call, rank, fmt::format("the name has {} bytes, at most {} are allowed", name.size(), kLongestName));
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
  signature.split = call.split;
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
      signature.op_detail = hash_bytes(user->name.data(), user->name.size(),
                                       (user->commutative ? 1 : 2) + 4 * element_bytes_of(signature.type, call.op));
  } else {
    signature.op_detail = call.foreign_type;
  }
  signature.wire = wire;
  signature.force = force && !(wire == WireName());
  signature.counts_hash = call.layout;
  if (call.has_counts) {
    signature.has_counts = true;
    signature.counts_hash = hash_bytes(call.counts.data(), call.counts.size_bytes(), call.layout);
  }
  return signature;
}

Signature sign_refusal(const Call& call) noexcept {
  Signature signature;
  signature.collective = call.collective;
  signature.has_counts = call.has_counts;
  signature.split = call.split;
  signature.refused = true;
  return signature;
}

}  // namespace collectives
