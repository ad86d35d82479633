// Functions for the members of a group. A member is one of the collectives that a group performs together.
//
// The functions divide the buffers of a member into tensors, one for each rank's part. They also check the lists of
// tensors that the program passes. A group may perform its members in any order. The function check_apart() therefore
// throws an error if one member writes memory that another member reads or writes.
//
// The function check_apart() sorts the memory ranges of all buffers by address, and visits each range once. A range
// overlaps an earlier range if it begins before the highest end address so far. Therefore check_apart() remembers only
// two ranges: the range with the highest end address, and the written range with the highest end address.
#include "communicator/group_member.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include "collectives/error.hpp"

namespace collectives {
namespace {

[[noreturn]] void refuse_member(std::string_view name, Rank rank, std::string_view why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", name, why), rank, kNoRank, std::string(name));
}
[[noreturn]] void refuse_member(Collective collective, Rank rank, std::string_view why) {
  refuse_member(to_string(collective), rank, why);
}

/// Memory of one buffer of a group.
struct MemberRange {
  std::uintptr_t begin = 0, end = 0;
  std::size_t member = 0;  ///< position in the group, from 0
  bool is_written = false;
};

std::string_view side_of(const MemberRange& range) { return range.is_written ? "output" : "input"; }

std::vector<MemberRange> ranges_of(std::span<const GroupMember> members) {
  std::vector<MemberRange> ranges;
  const auto add = [&](const void* data, std::size_t bytes, std::size_t member, bool is_written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    if (bytes > 0) ranges.push_back({begin, begin + bytes, member, is_written});
  };
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto& [call, inputs, outputs, parts, lists, message] = members[i];
    for (const Buffer& output : outputs) add(output.data, output.bytes(), i, true);
    // If a member works in place, one range describes its output and the memory that input and output share.
    if (!is_fusible(call.collective) && inputs.size() == 1 && outputs.size() == 1) {
      const auto* const input = static_cast<const std::byte*>(inputs[0].data);
      const auto* const output = static_cast<const std::byte*>(outputs[0].data);
      const std::byte *const input_end = input + inputs[0].bytes(), *const output_end = output + outputs[0].bytes();
      const bool in_place = output < input_end && input < output_end;
      const std::byte* const before_end = in_place ? std::max(input, output) : input_end;
      add(input, static_cast<std::size_t>(before_end - input), i, false);
      if (in_place && output_end < input_end)
        add(output_end, static_cast<std::size_t>(input_end - output_end), i, false);
      continue;
    }
    for (const ConstBuffer& input : inputs) {
      const bool in_place = std::ranges::any_of(
          outputs, [&](const Buffer& output) { return output.data == input.data && output.count >= input.count; });
      if (!in_place) add(input.data, input.bytes(), i, false);
    }
  }
  std::ranges::sort(ranges, {}, &MemberRange::begin);
  return ranges;
}

[[noreturn]] void refuse_overlap(const MemberRange& a, const MemberRange& b, std::span<const GroupMember> members,
                                 Rank rank) {
  const auto& [first, second] = std::minmax(a, b, [](const auto& x, const auto& y) { return x.member < y.member; });
  const GroupMember& later = members[second.member];
  const std::string_view name = later.message.empty() ? to_string(later.call.collective) : later.message;
  if (first.member == second.member)
    refuse_member(name, rank, fmt::format("buffers of tensor {} overlap without being in place", first.member + 1));
  refuse_member(name, rank,
                fmt::format("the {} of tensor {} and the {} of tensor {} overlap in a group of {} tensors: a group "
                            "writes each output once, and reads no output of another tensor",
                            side_of(first), first.member + 1, side_of(second), second.member + 1, members.size()));
}

/// Divides a buffer into one tensor for each rank's part. Without displacements, the parts follow one another.
template <class Byte, class Whole>
std::vector<Whole> divided(const Whole& whole, const PartLayout& parts) {
  std::vector<Whole> tensors;
  std::size_t at = 0;
  for (std::size_t r = 0; r < parts.counts.size(); at += parts.counts[r++]) {
    if (!parts.displacements.empty() && parts.counts[r] > 0) at = parts.displacements[r];
    tensors.push_back({static_cast<Byte*>(whole.data) + at * size_of(whole.type), parts.counts[r], whole.type});
  }
  return tensors;
}

}  // namespace

std::size_t GroupMember::count() const noexcept { return std::accumulate(parts.begin(), parts.end(), std::size_t{0}); }

CallLists::CallLists(const Call& call)
    : counts(call.counts.begin(), call.counts.end()),
      displacements(call.displacements.begin(), call.displacements.end()),
      input_counts(call.input_parts.counts.begin(), call.input_parts.counts.end()),
      input_displacements(call.input_parts.displacements.begin(), call.input_parts.displacements.end()) {}

void CallLists::attach_to(Call& call) const noexcept {
  call.counts = counts;
  call.displacements = displacements;
  call.input_parts = {input_counts, input_displacements};
}

GroupMember member_of(const Call& call, Rank rank, int size) {
  GroupMember member{.call = call, .inputs = {}, .outputs = {}, .parts = {}, .lists = {}, .message = {}};
  CallLists().attach_to(member.call);
  if (!is_fusible(call.collective) || is_displaced(call)) member.lists = CallLists(call);
  if (is_divided(call.collective)) {
    const std::size_t mine = call.collective == Collective::all_gather ? call.input.count : call.output.count;
    member.parts.assign(static_cast<std::size_t>(size), mine);
    if (call.has_counts) member.parts.assign(call.counts.begin(), call.counts.end());
  } else {
    const bool by_input = call.collective == Collective::reduce || call.collective == Collective::exclusive_scan;
    member.parts.assign(1, by_input ? call.input.count : call.output.count);
  }
  const Sides sides = sides_of(call, rank);
  const PartLayout parts(member.parts, call.displacements);
  if (call.collective == Collective::reduce_scatter)
    member.inputs = divided<const std::byte>(call.input, parts);
  else if (sides.input)
    member.inputs.push_back(call.input);
  if (call.collective == Collective::all_gather)
    member.outputs = divided<std::byte>(call.output, parts);
  else if (sides.output)
    member.outputs.push_back(call.output);
  return member;
}

GroupMember member_of(const MessageCall& call) {
  GroupMember member{
      .call = {}, .inputs = {}, .outputs = {}, .parts = {}, .lists = {}, .message = call.sends() ? "send" : "recv"};
  if (call.sends())
    member.inputs.push_back({call.data, call.count, call.type});
  else
    member.outputs.push_back({call.data, call.count, call.type});
  return member;
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

const std::byte* adjacent(std::span<const ConstBuffer> buffers) noexcept {
  const std::byte *first = nullptr, *end = nullptr;
  for (const ConstBuffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(buffer.data);
    if (first == nullptr) first = begin;
    if (end != nullptr && begin != end) return nullptr;
    end = begin + buffer.bytes();
  }
  return first;
}

void check_apart(std::span<const GroupMember> members, Rank rank) {
  const MemberRange* last = nullptr;          // range with the highest end address
  const MemberRange* last_written = nullptr;  // written range with the highest end address
  const std::vector<MemberRange> ranges = ranges_of(members);
  for (const MemberRange& range : ranges) {
    const MemberRange* const other = range.is_written ? last : last_written;
    if (other != nullptr && range.begin < other->end) refuse_overlap(*other, range, members, rank);
    const auto take = [&](const MemberRange*& latest) {
      if (latest == nullptr || latest->end < range.end) latest = &range;
    };
    take(last);
    if (range.is_written) take(last_written);
  }
}

}  // namespace collectives
