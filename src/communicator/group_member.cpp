// Implementation of GroupMember, one of the collectives and messages that a group performs together.
//
// A member returns its buffers part by part. The function call_of_list() checks a list of tensors that the program
// passes. A group may perform its members in any order. The function check_apart() therefore throws an error if one
// member writes memory that another member reads or writes.
//
// The function check_apart() visits the memory ranges of all buffers in the order of their addresses. A range
// overlaps an earlier range if it begins before the highest end address so far. Therefore check_apart() remembers only
// two ranges: the range with the highest end address, and the written range with the highest end address.
#include "communicator/group_member.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/error.hpp"

namespace collectives {
namespace {

[[noreturn]] void refuse_member(std::string_view name, Rank rank, std::string_view why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", name, why), rank, kNoRank, std::string(name));
}
[[noreturn]] void refuse_member(Collective collective, Rank rank, std::string_view why) {
  refuse_member(to_string(collective), rank, why);
}

/// Appends the ranges of memory that a member reads or writes. `at`: its position in the group, from 0.
void append_ranges(const GroupMember& member, std::size_t at, MemberRanges& ranges) {
  const auto add = [&](const void* data, std::size_t bytes, bool is_written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    if (bytes > 0) (is_written ? ranges.written : ranges.read).push_back({begin, begin + bytes, at});
  };
  const auto [reads, writes] = member.sides();
  if (!member.has_scattered_parts()) {
    // If a member works in place, one range describes its output and the memory that input and output share.
    const ConstBuffer in = reads ? member.input() : ConstBuffer();
    const Buffer out = writes ? member.output() : Buffer();
    add(out.data, out.bytes(), true);
    const auto* const input = static_cast<const std::byte*>(in.data);
    const auto* const output = static_cast<const std::byte*>(out.data);
    const std::byte *const input_end = input + in.bytes(), *const output_end = output + out.bytes();
    const bool in_place = output < input_end && input < output_end;
    const std::byte* const before_end = in_place ? std::max(input, output) : input_end;
    add(input, static_cast<std::size_t>(before_end - input), false);
    if (in_place && output_end < input_end) add(output_end, static_cast<std::size_t>(input_end - output_end), false);
    return;
  }
  const std::size_t outputs = writes ? member.output_parts() : 0, inputs = reads ? member.input_parts() : 0;
  for (std::size_t part = 0; part < outputs; ++part) {
    const Buffer output = member.output(part);
    add(output.data, output.bytes(), true);
  }
  for (std::size_t part = 0; part < inputs; ++part) {
    const ConstBuffer input = member.input(part);
    bool in_place = false;
    for (std::size_t other = 0; other < outputs && !in_place; ++other) {
      const Buffer output = member.output(other);
      in_place = output.data == input.data && output.count >= input.count;
    }
    if (!in_place) add(input.data, input.bytes(), false);
  }
}

/// Range with the highest end address so far.
struct HighestRange {
  const MemberRange* range = nullptr;
  std::string_view side;  // "output" or "input"

  void take(const MemberRange& next, std::string_view side_of_next) noexcept {
    if (range == nullptr || range->end < next.end) *this = {&next, side_of_next};
  }
  bool overlaps(const MemberRange& next) const noexcept { return range != nullptr && next.begin < range->end; }
};

[[noreturn]] void refuse_overlap(HighestRange first, HighestRange second, const ReusedList<GroupMember>& members,
                                 Rank rank) {
  if (second.range->member < first.range->member) std::swap(first, second);
  const std::size_t before = first.range->member, later = second.range->member;
  const std::string_view name = members[later].name();
  if (before == later)
    refuse_member(name, rank, fmt::format("buffers of tensor {} overlap without being in place", before + 1));
  refuse_member(name, rank,
                fmt::format("the {} of tensor {} and the {} of tensor {} overlap in a group of {} tensors: a group "
                            "writes each output once, and reads no output of another tensor",
                            first.side, before + 1, second.side, later + 1, members.size()));
}

/// Sorts ranges by address. Programs often add buffers in the order of their addresses.
void sort_ranges(std::vector<MemberRange>& ranges) {
  if (!std::ranges::is_sorted(ranges, {}, &MemberRange::begin)) std::ranges::sort(ranges, {}, &MemberRange::begin);
}

}  // namespace

void GroupMember::set_counts(const Call& call) {
  counts_.assign(call.counts.begin(), call.counts.end());
  firsts_.assign(call.displacements.begin(), call.displacements.end());
  input_counts_.assign(call.input_parts.counts.begin(), call.input_parts.counts.end());
  input_displacements_.assign(call.input_parts.displacements.begin(), call.input_parts.displacements.end());
  count_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
  call_.counts = counts_;
  call_.displacements = firsts_;
  call_.input_parts = {input_counts_, input_displacements_};
  if (!is_fusible() || is_displaced(call)) return;
  call_.displacements = {};
  (has_divided_input(call.collective) ? input_.count : output_.count) = count_;  // the buffer may be longer
  firsts_.resize(counts_.size());
  std::exclusive_scan(counts_.begin(), counts_.end(), firsts_.begin(), std::size_t{0});
  // A v-form with equal parts is performed as the plain form, which another rank may have called.
  call_.has_counts = std::ranges::adjacent_find(counts_, std::not_equal_to<>()) != counts_.end();
}

void GroupMember::set(const Call& call, Rank rank, int size) {
  arguments_ = this;
  input_ = call.input;
  output_ = call.output;
  call_ = call;
  call_.tensors = {};
  tensors_.clear();
  message_ = {};
  sides_ = sides_of(call, rank);
  ranks_ = static_cast<std::size_t>(size);
  if (call.has_counts) set_counts(call);
  if (call_.has_counts) return;
  // Not every rank passes both buffers.
  const bool by_input = has_part_as_input(call.collective) || call.collective == Collective::reduce ||
                        call.collective == Collective::exclusive_scan;
  const std::size_t passed = by_input ? call.input.count : call.output.count;
  part_count_ = call.collective == Collective::all_to_all ? passed / ranks_ : passed;
  count_ = is_divided(call.collective) ? part_count_ * ranks_ : part_count_;
}

void GroupMember::set(const Call& call, std::span<const ConstBuffer> tensors, Rank rank, int size) {
  set(call, rank, size);
  tensors_.assign(tensors.begin(), tensors.end());
}

void GroupMember::set(const MessageCall& call) {
  arguments_ = this;
  call_ = {};
  tensors_.clear();
  message_ = call.sends() ? "send" : "recv";
  sides_ = {.input = call.sends(), .output = !call.sends()};
  if (call.sends())
    input_ = {call.data, call.count, call.type};
  else
    output_ = {call.data, call.count, call.type};
}

std::uint64_t GroupMember::hash_of_parts(std::uint64_t seed) const noexcept {
  seed = hash_bytes(counts_.data(), counts_.size() * sizeof counts_[0], seed);
  return hash_bytes(call_.displacements.data(), call_.displacements.size_bytes(), seed);
}

Call call_of_list(const Call& other_side, std::span<const ConstBuffer> tensors, Rank rank, int size,
                  std::vector<std::size_t>& counts) {
  const bool gathers = other_side.collective == Collective::all_gather;
  const std::string_view side = gathers ? "outputs" : "inputs";
  if (tensors.size() != static_cast<std::size_t>(size))
    refuse_member(other_side.collective, rank, fmt::format("{} {} for {} ranks", tensors.size(), side, size));
  for (std::size_t r = 0; r < tensors.size(); ++r) {
    if (tensors[r].type != tensors[0].type)
      refuse_member(other_side.collective, rank,
                    fmt::format("{}[0] is {}, {}[{}] is {}", side, to_string(tensors[0].type), side, r,
                                to_string(tensors[r].type)));
    if (tensors[r].data == nullptr && tensors[r].count > 0)
      refuse_member(other_side.collective, rank,
                    fmt::format("{}[{}] is null with {} elements", side, r, tensors[r].count));
    counts.push_back(tensors[r].count);
  }
  Call call = other_side;
  if (std::ranges::adjacent_find(counts, std::not_equal_to<>()) != counts.end()) {
    call.counts = counts;
    call.has_counts = true;
  }
  const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  const std::size_t before = std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  const void* mine = gathers ? other_side.input.data : other_side.output.data;
  for (const ConstBuffer& tensor : tensors)
    if (mine == nullptr) mine = tensor.data;  // this rank's part has no elements
  auto* const whole =
      reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(mine) - before * size_of(tensors[0].type));
  if (gathers)
    call.output = Buffer(whole, total, tensors[0].type);
  else
    call.input = ConstBuffer(whole, total, tensors[0].type);
  return call;
}

void check_apart(const ReusedList<GroupMember>& members, Rank rank, MemberRanges& ranges) {
  auto& [read, written] = ranges;
  read.clear();
  written.clear();
  for (std::size_t at = 0; at < members.size(); ++at) append_ranges(members[at], at, ranges);
  sort_ranges(read);
  sort_ranges(written);
  HighestRange last, last_written;
  const auto visit = [&](const MemberRange& range, bool is_written) {
    const HighestRange& other = is_written ? last : last_written;
    const std::string_view side = is_written ? "output" : "input";
    if (other.overlaps(range)) refuse_overlap(other, {&range, side}, members, rank);
    last.take(range, side);
    if (is_written) last_written.take(range, side);
  };
  auto next_read = read.begin();
  for (const MemberRange& range : written) {
    for (; next_read != read.end() && next_read->begin < range.begin; ++next_read) visit(*next_read, false);
    visit(range, true);
  }
  for (; next_read != read.end(); ++next_read) visit(*next_read, false);
}

}  // namespace collectives
