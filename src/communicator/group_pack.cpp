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

/// Appends the name of a member to the joined names. Ranks compare a hash of the joined names. Puts a backslash before
/// commas and backslashes, because the names "a, b" and "c" would otherwise have the same hash as "a" and "b, c".
void append_name(std::string& names, std::string_view name) {
  for (const char letter : name) names.append(letter == ',' || letter == '\\' ? "\\" : "").push_back(letter);
}

/// Returns whether a member with this call may share a pack with other members.
bool is_packable(const Call& call, const Options& options) {
  if (options.compressor != nullptr || !is_fusible(call.collective)) return false;
  return call.memory == Memory::host || call.collective == Collective::all_reduce;
}

bool equal_but_name(const Options& a, const Options& b) {
  return a.backend == b.backend && a.timeout == b.timeout && a.deterministic == b.deterministic && a.wire == b.wire &&
         a.force == b.force && a.stream == b.stream && a.compressor == b.compressor;
}

/// Returns the element type of the buffer that every rank passes. On ranks other than the root, a reduce may have no
/// output, and a broadcast may have no input.
DataType type_of(const Call& call) {
  switch (call.collective) {
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::exclusive_scan: return call.input.type;
    default: return call.output.type;
  }
}

std::size_t bytes_of(const GroupMember& member) { return member.count() * size_of(type_of(member.call)); }

/// Returns a hash of the number of members, of their lengths in order, and of their parts and displacements. It is part
/// of the signature, which ranks compare. If the packs of two ranks have different members, all ranks therefore get an
/// error. The sums of the parts would not suffice: another member may even out a difference between two ranks.
std::uint64_t layout_of(std::span<const GroupMember> members, std::span<const std::size_t> lengths) {
  const auto with = [](std::span<const std::size_t> list, std::uint64_t hash) {
    return hash_bytes(list.data(), list.size_bytes(), hash);
  };
  std::uint64_t hash = with(lengths, lengths.size());
  if (!is_divided(members.front().call.collective)) return hash;
  for (const GroupMember& member : members) hash = with(member.lists.displacements, with(member.parts, hash));
  return hash;
}

}  // namespace

GroupPack::GroupPack(GroupMember member, const Options& options, std::exception_ptr refused)
    : call_(member.call),
      options_(options),
      backend_(options.backend),
      name_(options.name),
      any_named_(!options.name.empty()),
      refused_(std::move(refused)) {
  append_name(names_, options.name);
  members_.push_back(std::move(member));
}

bool GroupPack::takes(const GroupMember& member, const Options& options, std::size_t limit) const noexcept {
  const Call& call = member.call;
  Options mine = options_;
  mine.backend = backend_;
  const bool on_device = call.memory == Memory::device;
  return call.collective == call_.collective && type_of(call) == type_of(call_) && same_op(call.op, call_.op) &&
         call.root == call_.root && call.memory == call_.memory && equal_but_name(mine, options) &&
         is_packable(call, options) &&
         (on_device || (bytes_of(member) <= limit && bytes_of(members_.front()) <= limit));
}

void GroupPack::add(GroupMember member, std::string_view name, const std::exception_ptr& refused) {
  append_name(names_.append(", "), name);
  any_named_ = any_named_ || !name.empty();
  if (refused_ == nullptr) refused_ = refused;
  members_.push_back(std::move(member));
}

std::size_t GroupPack::count() const noexcept {
  return std::accumulate(members_.begin(), members_.end(), std::size_t{0},
                         [](std::size_t sum, const GroupMember& member) { return sum + member.count(); });
}

template <class Visit>
void GroupPack::for_each_input(Visit&& visit) const {
  for (std::size_t part = 0; part < members_.front().inputs.size(); ++part)
    for (const GroupMember& member : members_) visit(member.inputs[part]);
}

template <class Visit>
void GroupPack::for_each_output(Visit&& visit) const {
  for (std::size_t part = 0; part < members_.front().outputs.size(); ++part)
    for (const GroupMember& member : members_) visit(member.outputs[part]);
}

bool GroupPack::use_in_place(Call& call) const {
  std::vector<ConstBuffer> inputs, outputs;
  for_each_input([&](const ConstBuffer& input) { inputs.push_back(input); });
  for_each_output([&](const Buffer& output) { outputs.push_back(output); });
  const auto sum = [](const std::vector<ConstBuffer>& buffers) {
    return std::accumulate(buffers.begin(), buffers.end(), std::size_t{0},
                           [](std::size_t total, const ConstBuffer& buffer) { return total + buffer.count; });
  };
  const std::size_t read = sum(inputs), written = sum(outputs);
  const std::byte* const input = adjacent(inputs);
  const std::byte* const output = adjacent(outputs);
  if ((input == nullptr && read > 0) || (output == nullptr && written > 0)) return false;
  call.input = ConstBuffer(input, read, type_of(call_));
  call.output = Buffer(const_cast<std::byte*>(output), written, type_of(call_));
  // Ranks other than the root may pass no output in a reduce, and no input in a broadcast. They still set the length of
  // the missing buffer.
  if (inputs.empty()) call.input.count = written;
  if (outputs.empty()) call.output.count = read;
  return true;
}

void GroupPack::copy_inputs(Call& call, Rank rank) {
  const DataType type = type_of(call_);
  const std::size_t element = size_of(type), whole = count();
  const std::string collective(to_string(call.collective));
  try {
    scratch_ = pool_->take(std::max<std::size_t>(whole * element, 1));
  } catch (const std::exception&) {
    throw Error(Errc::system,
                fmt::format("{}: no memory for the {} of a group of {} tensors", collective,
                            bytes_text(whole * element), members_.size()),
                rank, rank, collective);
  }
  const bool gathers = call.collective == Collective::all_gather,
             scatters = call.collective == Collective::reduce_scatter;
  std::byte* const first = scratch_.data();
  std::byte* own = first;
  std::size_t own_count = whole;
  if (is_divided(call.collective)) {
    own += std::accumulate(parts_.begin(), parts_.begin() + rank, std::size_t{0}) * element;
    own_count = parts_[static_cast<std::size_t>(rank)];
  }
  call.input = gathers ? ConstBuffer(own, own_count, type) : ConstBuffer(first, whole, type);
  call.output = scatters ? Buffer(own, own_count, type) : Buffer(first, whole, type);
  results_ = static_cast<const std::byte*>(call.output.data);
  std::byte* at = gathers ? own : first;
  for_each_input([&](const ConstBuffer& input) {
    if (input.count > 0) std::memcpy(at, input.data, input.bytes());
    at += input.bytes();
  });
}

void GroupPack::finish() {
  if (results_ == nullptr) return;
  const std::byte* at = std::exchange(results_, nullptr);
  for_each_output([&](const Buffer& output) {
    if (output.count > 0) std::memcpy(output.data, at, output.bytes());
    at += output.bytes();
  });
  pool_->give_back(std::move(scratch_));
}

Call GroupPack::prepare(const std::shared_ptr<ScratchPool>& pool, Rank rank) {
  pool_ = pool;
  options_.backend = backend_;
  options_.name = name_;
  if (!is_fusible(call_.collective)) {
    Call alone = call_;
    members_.front().lists.attach_to(alone);
    return alone;
  }
  Call call{.collective = call_.collective, .op = call_.op, .root = call_.root};
  if (call.collective == Collective::barrier) return call;
  parts_.resize(members_.front().parts.size());
  for (const GroupMember& member : members_) {
    lengths_.push_back(member.count());
    std::ranges::transform(parts_, member.parts, parts_.begin(), std::plus<>());
  }
  if (is_divided(call.collective) && std::ranges::adjacent_find(parts_, std::not_equal_to<>()) != parts_.end()) {
    call.counts = parts_;
    call.has_counts = true;
  }
  call.layout = layout_of(members_, lengths_);
  if (!call.has_counts) call.lengths = lengths_;
  const bool fused = members_.size() > 1;
  if (fused && any_named_) call.names = names_;
  if (fused && call_.memory == Memory::device) {  // the code for GPU memory packs the tensors
    for (const GroupMember& member : members_) tensors_.push_back({member.call.input, member.call.output});
    const auto any = std::ranges::find_if(tensors_, [](const Tensor& tensor) { return tensor.output.count > 0; });
    call.output = Buffer(any->output.data, count(), type_of(call_));
    call.input = call.output;
    call.tensors = tensors_;
  } else if (!use_in_place(call)) {
    copy_inputs(call, rank);
  }
  return call;
}

}  // namespace collectives
