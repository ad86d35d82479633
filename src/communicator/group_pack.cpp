// Implementation of GroupPack, which performs several collectives of a group as one call.
//
// The collectives are the members of the pack. The pack joins their vectors, and makes one call on the joined vector.
// If the tensors of all members are adjacent in memory, the call works on them in place. Otherwise the pack copies the
// inputs into scratch memory before the call, and copies the results to the outputs after it.
#include "communicator/group_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

bool are_equal_but_for_names(const Options& a, const Options& b) {
  return a.backend == b.backend && a.timeout == b.timeout && a.deterministic == b.deterministic && a.wire == b.wire &&
         a.force == b.force && a.stream == b.stream && a.compressor == b.compressor;
}

/// Returns the element type of the buffer that every rank passes. On ranks other than the root, a reduce and a
/// gather may have no output, a broadcast and a scatter no input.
DataType type_of(const Call& call) {
  switch (call.collective) {
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::exclusive_scan: return call.input.type;
    default: return call.output.type;
  }
}

/// Returns whether a member may share a pack with other members.
bool is_packable(const GroupMember& member, const Options& options, std::size_t limit) {
  if (options.compressor != nullptr || !member.is_fusible()) return false;
  if (member.call().memory == Memory::device) return member.call().collective == Collective::all_reduce;
  return member.count() * size_of(type_of(member.call())) <= limit;
}

/// Buffers that follow one another in memory.
struct AdjacentBuffers {
  const std::byte *first = nullptr, *end = nullptr;
  std::size_t count = 0;  ///< elements of all buffers

  /// Appends a buffer. Returns false if it does not begin where the last one ends.
  bool append(const ConstBuffer& buffer) noexcept {
    if (buffer.count == 0) return true;
    const auto* const begin = static_cast<const std::byte*>(buffer.data);
    if (first == nullptr) first = end = begin;
    if (begin != end) return false;
    end = begin + buffer.bytes();
    count += buffer.count;
    return true;
  }
};

}  // namespace

void GroupPack::begin(const GroupMember& member, const Options& options, std::size_t limit,
                      std::exception_ptr refused) {
  members_.assign(1, &member);
  fuses_ = is_packable(member, options, limit);
  options_ = options;
  options_.backend = backend_.assign(options.backend);
  options_.name = name_.assign(options.name);
  any_named_ = false;
  names_.clear();
  append_name(options.name);
  refused_ = std::move(refused);
  results_ = nullptr;
}

bool GroupPack::takes(const GroupMember& member, const Options& options, std::size_t limit) const noexcept {
  if (!fuses_) return false;
  const Call &mine = first().call(), &other = member.call();
  return other.collective == mine.collective && type_of(other) == type_of(mine) && same_op(other.op, mine.op) &&
         other.root == mine.root && other.memory == mine.memory && are_equal_but_for_names(options_, options) &&
         is_packable(member, options, limit);
}

bool GroupPack::repeats(const Call& call, const Options& options) const noexcept {
  const auto are_alike = [](const ConstBuffer& a, const ConstBuffer& b) {
    return a.count == b.count && a.type == b.type;
  };
  const Call& mine = last().call();
  return are_alike(call.input, last().input()) && are_alike(call.output, last().output()) &&
         call.collective == mine.collective && same_op(call.op, mine.op) && call.root == mine.root &&
         !call.has_counts && !mine.has_counts && !last().has_scattered_parts() && options.name.empty() && !any_named_ &&
         options.compressor == nullptr && are_equal_but_for_names(options_, options);
}

void GroupPack::add(const GroupMember& member, std::string_view name, const std::exception_ptr& refused) {
  members_.push_back(&member);
  append_name(name);
  if (refused_ == nullptr) refused_ = refused;
}

/// Appends the name of the last member to the joined names. Ranks compare a hash of the joined names. Puts a backslash
/// before commas and backslashes, because the names "a, b" and "c" would otherwise have the same hash as "a" and
/// "b, c". Does nothing until a member has a name.
void GroupPack::append_name(std::string_view name) {
  if (name.empty() && !any_named_) return;
  const std::size_t missing = any_named_ ? 1 : members_.size() - 1;
  for (std::size_t i = 0; i < missing; ++i) names_.append(", ");
  for (const char letter : name) names_.append(letter == ',' || letter == '\\' ? "\\" : "").push_back(letter);
  any_named_ = true;
}

bool GroupPack::is_plain() const noexcept {
  return first().call().memory == Memory::host && refused_ == nullptr && options_.compressor == nullptr;
}

std::span<const GroupMember* const> GroupPack::fused() const noexcept {
  return std::span(members_).first(fuses_ ? members_.size() : 1);
}

std::size_t GroupPack::count() const noexcept {
  std::size_t sum = 0;
  for (const GroupMember* const member : fused()) sum += member->count();
  return sum;
}

template <class Visit>
bool GroupPack::for_each_input(Visit&& visit) const {
  const std::size_t parts = first().sides().input ? first().input_parts() : 0;
  for (std::size_t part = 0; part < parts; ++part)
    for (const GroupMember* const member : fused())
      if (!visit(member->input(part))) return false;
  return true;
}

template <class Visit>
bool GroupPack::for_each_output(Visit&& visit) const {
  const std::size_t parts = first().sides().output ? first().output_parts() : 0;
  for (std::size_t part = 0; part < parts; ++part)
    for (const GroupMember* const member : fused())
      if (!visit(member->output(part))) return false;
  return true;
}

bool GroupPack::use_in_place() {
  if (fused().size() == 1 && !first().has_scattered_parts()) {
    call_.input = first().input();
    call_.output = first().output();
    return true;
  }
  AdjacentBuffers inputs, outputs;
  if (!for_each_input([&](const ConstBuffer& input) { return inputs.append(input); })) return false;
  if (!for_each_output([&](const Buffer& output) { return outputs.append(output); })) return false;
  const DataType type = type_of(first().call());
  call_.input = ConstBuffer(inputs.first, inputs.count, type);
  call_.output = Buffer(const_cast<std::byte*>(outputs.first), outputs.count, type);
  // Ranks other than the root may pass no output in a reduce, and no input in a broadcast. They still set the length of
  // the missing buffer.
  if (!first().sides().input) call_.input.count = outputs.count;
  if (!first().sides().output) call_.output.count = inputs.count;
  return true;
}

void GroupPack::copy_inputs(ScratchPool& pool, Rank rank) {
  const DataType type = type_of(first().call());
  const std::size_t element = size_of(type), whole = count();
  const bool gathers = has_part_as_input(call_.collective), scatters = has_part_as_output(call_.collective),
             swaps = call_.collective == Collective::all_to_all;
  try {
    scratch_ = pool.take(std::max<std::size_t>((swaps ? 2 : 1) * whole * element, 1));
  } catch (const std::exception&) {
    const std::string collective(to_string(call_.collective));
    throw Error(Errc::system,
                fmt::format("{}: no memory for the {} of a group of {} tensors", collective,
                            bytes_text(whole * element), members_.size()),
                rank, rank, collective);
  }
  std::byte* const start = scratch_.data();
  std::byte* own = start;
  std::size_t own_count = whole;
  if (gathers || scatters) {
    own += std::accumulate(parts_.begin(), parts_.begin() + rank, std::size_t{0}) * element;
    own_count = parts_[static_cast<std::size_t>(rank)];
  }
  call_.input = gathers ? ConstBuffer(own, own_count, type) : ConstBuffer(start, whole, type);
  call_.output = scatters ? Buffer(own, own_count, type) : Buffer(start + (swaps ? whole * element : 0), whole, type);
  results_ = static_cast<const std::byte*>(call_.output.data);
  std::byte* at = gathers ? own : start;
  for_each_input([&](const ConstBuffer& input) {
    if (input.count > 0) std::memcpy(at, input.data, input.bytes());
    at += input.bytes();
    return true;
  });
}

void GroupPack::finish(ScratchPool& pool) {
  if (results_ == nullptr) return;
  const std::byte* at = std::exchange(results_, nullptr);
  for_each_output([&](const Buffer& output) {
    if (output.count > 0) std::memcpy(output.data, at, output.bytes());
    at += output.bytes();
    return true;
  });
  pool.give_back(std::move(scratch_));
}

/// The layout, a hash, is part of the signature, which ranks compare. If the packs of two ranks have different members,
/// all ranks therefore get an error. The sums of the parts would not suffice: another member may even out a difference
/// between two ranks.
void GroupPack::count_parts() {
  const bool is_cut = is_divided(call_.collective);
  lengths_.clear();
  parts_.assign(is_cut ? std::max(first().input_parts(), first().output_parts()) : 0, 0);
  for (const GroupMember* const member : fused()) {
    lengths_.push_back(member->count());
    for (std::size_t part = 0; part < parts_.size(); ++part) parts_[part] += member->count_of(part);
  }
  if (std::ranges::adjacent_find(parts_, std::not_equal_to<>()) != parts_.end()) {
    call_.counts = parts_;
    call_.has_counts = true;
  } else if (lengths_.size() > 1) {
    call_.lengths = lengths_;
  }
  call_.layout = hash_bytes(lengths_.data(), lengths_.size() * sizeof lengths_[0], lengths_.size());
  for (std::size_t i = 0; is_cut && i < fused().size(); ++i)
    if (fused()[i]->has_unequal_parts()) call_.layout = fused()[i]->hash_of_parts(call_.layout + i);
}

Call& GroupPack::prepare(ScratchPool& pool, Rank rank) {
  const Call& alone = first().call();
  if (!first().is_fusible()) return call_ = alone;
  call_ = {.collective = alone.collective, .op = alone.op, .root = alone.root};
  if (call_.collective == Collective::barrier) return call_;
  count_parts();
  const bool joins = fused().size() > 1;
  if (joins && any_named_) call_.names = names_;
  if (joins && alone.memory == Memory::device) {  // the code for GPU memory packs the tensors
    tensors_.clear();
    for (const GroupMember* const member : fused()) tensors_.push_back({member->input(), member->output()});
    const auto any = std::ranges::find_if(tensors_, [](const Tensor& tensor) { return tensor.output.count > 0; });
    call_.output = Buffer(any->output.data, count(), type_of(alone));
    call_.input = call_.output;
    call_.tensors = tensors_;
  } else if (!use_in_place()) {
    copy_inputs(pool, rank);
  }
  return call_;
}

Call& GroupPack::repeated(std::size_t member) noexcept {
  call_.input = members_[member]->input();
  call_.output = members_[member]->output();
  return call_;
}

}  // namespace collectives
