// Implementation of the checks of a call's arguments, and of sign(), which computes the signature of a call. The
// signature holds the arguments that must be equal on all ranks, so that ranks can compare them. A rank checks its own
// arguments before it sends anything to other ranks.
//
// A reduce-scatter divides the input among the ranks, and an all-gather divides the output. The part of a rank is its
// range of the divided vector.
#include "core/call.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numeric>
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

/// Returns the type of the elements. In some collectives, not every rank passes both an input and an output. Takes the
/// type from the buffer that every rank passes.
DataType type_of(const Call& call) {
  switch (call.collective) {
    case Collective::reduce_scatter:
    case Collective::reduce:
    case Collective::gather:
    case Collective::scan:
    case Collective::exclusive_scan: return call.input.type;
    default: return call.output.type;
  }
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
  if (static_cast<std::size_t>(call.op.kind()) >= std::size(kReduceKinds))
    refuse(call, rank, fmt::format("no such op: {}", static_cast<int>(call.op.kind())));
}

Sides sides_of(const Call& call, Rank rank) noexcept {
  const bool at_root = rank == call.root;
  switch (call.collective) {
    case Collective::barrier: return {};
    case Collective::broadcast:
    case Collective::scatter: return {.input = at_root, .output = true};
    case Collective::reduce:
    case Collective::gather: return {.input = true, .output = at_root};
    case Collective::exclusive_scan: return {.input = true, .output = rank > 0};
    default: return {.input = true, .output = true};
  }
}

bool is_displaced(const Call& call) noexcept {
  std::size_t end = 0;
  for (std::size_t r = 0; r < std::min(call.counts.size(), call.displacements.size()); end += call.counts[r++])
    if (call.counts[r] > 0 && call.displacements[r] != end) return true;
  return false;
}

std::size_t whole_count(const Call& call, int size) noexcept {
  const auto ranks = static_cast<std::size_t>(size);
  if (call.has_counts)
    return has_local_counts(call.collective) ? 0
                                             : std::accumulate(call.counts.begin(), call.counts.end(), std::size_t{0});
  switch (call.collective) {
    case Collective::gather: return ranks * call.input.count;
    case Collective::scatter: return ranks * call.output.count;
    case Collective::all_gather:
    case Collective::broadcast: return call.output.count;
    case Collective::barrier: return 0;
    default: return call.input.count;
  }
}

namespace {

/// Returns the number of bytes of `count` elements. Refuses the call if std::ptrdiff_t cannot hold that number.
std::size_t bytes_of(const Call& call, Rank rank, std::size_t count, DataType type) {
  if (count > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) / size_of(type))
    refuse(call, rank, fmt::format("{} elements of {} overflow the address space", count, to_string(type)));
  return count * size_of(type);
}

void check_not_null(const Call& call, Rank rank, const ConstBuffer& buffer, const char* name) {
  if (buffer.data == nullptr && buffer.count > 0)
    refuse(call, rank, fmt::format("{} is null with {} elements", name, buffer.count));
}

/// Checks that the op (such as sum) exists for the type, and that a user op has a function.
void check_op(const Call& call, Rank rank) {
  if (!supports(call.input.type, call.op))
    refuse(call, rank, fmt::format("{} has no {}", to_string(call.input.type), to_string(call.op.kind())));
  if (call.op.kind() == ReduceOp::Kind::user && (call.op.user_op() == nullptr || !call.op.user_op()->combine))
    refuse(call, rank, "the user op has no function");
}

/// Number of elements of a buffer, with the name of the buffer in error texts.
struct NamedCount {
  const char* name;
  std::size_t count;
};

/// Checks the element size of a user op. An element of a user op may consist of several elements of the type. Also
/// checks that each buffer holds a whole number of such elements. `counts` lists the numbers of elements of all buffers
/// that this rank uses.
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
  for (std::size_t r = 0; r < call.displacements.size(); ++r)
    check(call.displacements[r], [r] { return fmt::format("displacements[{}]", r); });
}

/// Checks that input and output have equally many elements.
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
           fmt::format("{} has {} elements, {} has {}: for {} ranks it must have {}", mine.name, mine.count, whole.name,
                       whole.count, ranks, mine.count * ranks));
  return static_cast<std::size_t>(rank) * mine.count;
}

/// Checks that no two parts with elements overlap. Allocates memory only if the parts do not lie in the order of ranks.
void check_disjoint(const Call& call, Rank rank, const PartLayout& layout, const char* name) {
  const auto refuse_pair = [&](std::size_t a, std::size_t b) {
    refuse(call, rank,
           fmt::format("parts {} and {} of {} overlap: {} elements from {} on, and {} from {} on", std::min(a, b),
                       std::max(a, b), name, layout.counts[std::min(a, b)], layout.displacements[std::min(a, b)],
                       layout.counts[std::max(a, b)], layout.displacements[std::max(a, b)]));
  };
  const auto end_of = [&](std::size_t r) { return layout.displacements[r] + layout.counts[r]; };
  bool ascending = true;
  std::size_t end = 0;
  for (std::size_t r = 0; r < layout.counts.size() && ascending; ++r) {
    if (layout.counts[r] == 0) continue;
    ascending = layout.displacements[r] >= end;
    end = end_of(r);
  }
  if (ascending) return;
  std::vector<std::size_t> order;
  for (std::size_t r = 0; r < layout.counts.size(); ++r)
    if (layout.counts[r] > 0) order.push_back(r);
  std::ranges::sort(order, {}, [&](std::size_t r) { return layout.displacements[r]; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (end_of(order[i - 1]) > layout.displacements[order[i]]) refuse_pair(order[i - 1], order[i]);
}

/// Checks the layout of the parts of `whole`. `written`: whether the call writes the parts.
void check_layout(const Call& call, Rank rank, std::size_t ranks, const PartLayout& layout, const NamedCount& whole,
                  bool written) {
  const auto& [counts, displacements] = layout;
  if (counts.size() != ranks) refuse(call, rank, fmt::format("{} counts for {} ranks", counts.size(), ranks));
  if (!displacements.empty() && displacements.size() != ranks)
    refuse(call, rank, fmt::format("{} displacements for {} ranks", displacements.size(), ranks));
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    if (count > std::numeric_limits<std::size_t>::max() - total) refuse(call, rank, "the counts overflow");
    total += count;
  }
  if (displacements.empty()) {
    if (whole.count != total)
      refuse(call, rank, fmt::format("{} has {} elements, the counts add up to {}", whole.name, whole.count, total));
    return;
  }
  for (std::size_t r = 0; r < ranks; ++r)
    if (counts[r] > 0 && (displacements[r] > whole.count || counts[r] > whole.count - displacements[r]))
      refuse(call, rank,
             fmt::format("part {} of {} has {} elements from element {} on, and {} has {} elements", r, whole.name,
                         counts[r], displacements[r], whole.name, whole.count));
  if (written) check_disjoint(call, rank, layout, whole.name);
}

/// Checks the lengths of both buffers against the layout of `whole`, which has one part per rank. Returns the element
/// of `whole` at which this rank's part begins.
std::size_t check_counts(const Call& call, Rank rank, std::size_t ranks, const NamedCount& whole,
                         const NamedCount& mine) {
  const auto self = static_cast<std::size_t>(rank);
  const bool written = call.collective != Collective::reduce_scatter && call.collective != Collective::scatter;
  const PartLayout layout(call.counts, call.displacements);
  if (layout.counts.size() == ranks && mine.count != layout.counts[self])
    refuse(call, rank,
           fmt::format("{} has {} elements, counts[{}] is {}", mine.name, mine.count, rank, layout.counts[self]));
  check_layout(call, rank, ranks, layout, whole, written);
  if (!layout.displacements.empty()) return layout.displacements[self];
  return std::accumulate(layout.counts.begin(), layout.counts.begin() + rank, std::size_t{0});
}

/// Checks the lengths of both buffers of a call. `whole` holds the parts of all ranks, `mine` holds this rank's part.
/// Returns the element of `whole` at which the part of this rank begins.
std::size_t check_parts(const Call& call, Rank rank, int size, const NamedCount& whole, const NamedCount& mine) {
  const auto check = call.has_counts ? &check_counts : &check_equal_parts;
  return check(call, rank, static_cast<std::size_t>(size), whole, mine);
}

/// Checks that the parts of all ranks, each as long as `mine`, can be counted.
void check_countable(const Call& call, Rank rank, int size, const NamedCount& mine) {
  if (!call.has_counts && mine.count > std::numeric_limits<std::size_t>::max() / static_cast<std::size_t>(size))
    refuse(call, rank, "the counts of all ranks overflow");
  if (!call.has_counts) bytes_of(call, rank, mine.count * static_cast<std::size_t>(size), type_of(call));
}

/// Checks that the part of this rank in a reduce-scatter overlaps no other part of the input, if the result replaces
/// that part. Peers read the other parts, also after the result is written. A scatter in place writes nothing there.
void check_part_in_place(const Call& call, Rank rank) {
  const auto self = static_cast<std::size_t>(rank);
  for (std::size_t r = 0; r < call.displacements.size(); ++r) {
    const std::size_t begin = std::max(call.displacements[r], call.displacements[self]);
    const std::size_t end =
        std::min(call.displacements[r] + call.counts[r], call.displacements[self] + call.counts[self]);
    if (r != self && begin < end)
      refuse(call, rank, fmt::format("the output replaces part {} of the input, which overlaps part {}", rank, r));
  }
}

/// Checks the lengths of an all_to_all. Returns whether the call may be in place: both buffers have the same parts.
bool check_all_to_all(const Call& call, Rank rank, int size, const NamedCount& in, const NamedCount& out) {
  const auto ranks = static_cast<std::size_t>(size), self = static_cast<std::size_t>(rank);
  if (!call.has_counts) {
    check_equal_counts(call, rank);
    if (in.count % ranks != 0)
      refuse(call, rank, fmt::format("input has {} elements, which {} ranks cannot divide evenly", in.count, size));
    return true;
  }
  const PartLayout sent = call.input_parts, received(call.counts, call.displacements);
  check_layout(call, rank, ranks, sent, in, false);
  check_layout(call, rank, ranks, received, out, true);
  if (sent.counts[self] != received.counts[self])
    refuse(call, rank,
           fmt::format("the part of this rank has {} elements in the input, {} in the output", sent.counts[self],
                       received.counts[self]));
  return std::ranges::equal(sent.counts, received.counts) &&
         std::ranges::equal(sent.displacements, received.displacements);
}

/// Checks the lengths of input and output. Returns the only address at which the output may overlap the input; 0: there
/// is none.
std::uintptr_t check_shape(const Call& call, Rank rank, int size) {
  const auto input = reinterpret_cast<std::uintptr_t>(call.input.data);
  const NamedCount in{"input", call.input.count}, out{"output", call.output.count};
  const std::size_t element = size_of(call.input.type);
  switch (call.collective) {
    case Collective::scan:
    case Collective::all_reduce: check_equal_counts(call, rank); break;
    case Collective::exclusive_scan:
      if (rank > 0) check_equal_counts(call, rank);
      break;
    case Collective::reduce:
    case Collective::broadcast:
      if (rank == call.root) check_equal_counts(call, rank);
      break;
    case Collective::scatter:
      if (rank != call.root) return check_countable(call, rank, size, out), 0;
      [[fallthrough]];
    case Collective::reduce_scatter: {
      const std::uintptr_t mine = input + check_parts(call, rank, size, in, out) * element;
      if (call.collective == Collective::reduce_scatter && reinterpret_cast<std::uintptr_t>(call.output.data) == mine)
        check_part_in_place(call, rank);
      return mine;
    }
    case Collective::gather:
      if (rank != call.root) return check_countable(call, rank, size, in), 0;
      [[fallthrough]];
    case Collective::all_gather: return input - check_parts(call, rank, size, out, in) * element;
    case Collective::all_to_all: return check_all_to_all(call, rank, size, in, out) ? input : 0;
    case Collective::barrier: break;
  }
  return input;
}

}  // namespace

void check_arguments(const Call& call, Rank rank, int size) {
  check_vocabulary(call, rank);
  if (call.collective == Collective::barrier) return;
  if (has_root(call.collective) && (call.root < 0 || call.root >= size))
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
  const DataType type = type_of(call);
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

Signature sign(const Call& call, Rank rank, int size, std::string_view backend, bool deterministic,
               const WireName& wire, bool force) {
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
  signature.count = whole_count(call, size);
  signature.type = type_of(call);
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
    if (has_local_counts(call.collective)) return signature;
    signature.counts_hash = hash_bytes(call.counts.data(), call.counts.size_bytes(), call.layout);
    if (is_displaced(call))
      signature.counts_hash =
          hash_bytes(call.displacements.data(), call.displacements.size_bytes(), signature.counts_hash);
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
