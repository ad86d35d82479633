#include "shared_memory/lines.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>

#include "shared_memory/round_up.hpp"

namespace collectives {
namespace {

/// How often in a row a rank looks for a line that has not come: the way up to whoever waits and back costs as much.
constexpr int kLooks = 8;

constexpr std::size_t lines_for(std::size_t bytes) { return (bytes + kLinePayload - 1) / kLinePayload; }

/// What says that the payload before it is there.
std::atomic_ref<std::uint64_t> tag_of(std::byte* line) {
  return std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(line + kLinePayload));
}

/// Into a line or out of it, `bytes` bytes of payload, or all that a line holds if there are more. Nobody else is at
/// them meanwhile: they are read behind their tag, and written when everyone has left the slot. In moves of fixed
/// length, the second over the end of the first: a call for a few bytes would take as long as all the rest.
inline void copy_payload(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto from_both_ends = [&]<std::size_t length>(std::integral_constant<std::size_t, length>) {
    std::byte first[length], last[length];
    std::memcpy(first, from, length);
    std::memcpy(last, from + bytes - length, length);
    std::memcpy(to, first, length);
    std::memcpy(to + bytes - length, last, length);
  };
  if (bytes >= kLinePayload) {
    std::memcpy(to, from, kLinePayload);
    return;
  }
  if (bytes >= 32) return from_both_ends(std::integral_constant<std::size_t, 32>());
  if (bytes >= 16) return from_both_ends(std::integral_constant<std::size_t, 16>());
  if (bytes >= 8) return from_both_ends(std::integral_constant<std::size_t, 8>());
  if (bytes >= 4) return from_both_ends(std::integral_constant<std::size_t, 4>());
  for (std::size_t at = 0; at < bytes; ++at) to[at] = from[at];
}

}  // namespace

Lines::Lines(const StageRoom& room)
    : room_(room),
      self_(room.self()),
      ranks_(room.ranks()),
      stride_(std::max<std::size_t>(1, lines_for(room.shape().inline_bytes)) * kLinePayload),
      gathered_(static_cast<std::size_t>(room.ranks()) * stride_),
      sources_(static_cast<std::size_t>(room.ranks())) {}

/// What the payload of a rank is: for a reduction all slices, side by side; for a gather its own.
Lines::Span Lines::payload(int local) const {
  return {0, (task_->combines() ? task_->total : task_->slice(local).count) * task_->element};
}

bool Lines::wants(int local) const {
  if (local == self_ || !task_->shows(local)) return false;
  if (task_->kind == Step::Kind::host_barrier) return true;
  return task_->combines() ? mine_.end > mine_.begin : task_->slice(local).count > 0;
}

void Lines::start(const HostTask& task, const HostOperands& with, std::uint64_t number) {
  task_ = &task;
  with_ = &with;
  number_ = number;
  tag_ = renumbered(with.tag, number);
  reading_ = 0;

  mine_ = payload(self_);
  own_bytes_ = mine_.end;
  if (task.kind == Step::Kind::host_reduce_scatter) {
    std::size_t before = 0;
    for (int local = 0; local < self_; ++local) before += task.slice(local).count;
    mine_ = {before * task.element, (before + task.slice(self_).count) * task.element};
  }
  std::size_t first = 0;
  while (task.combines() && first + 1 < task.slices.size() && task.slices[first].count == 0) ++first;
  if (!task.combines()) first = static_cast<std::size_t>(self_);
  if (task.adjacent || !task.combines()) {
    own_ = element_at(with.own, task.slices[first].first, task.element);
  } else {
    std::byte* packed = gathered(self_);
    for (const Range& slice : task.slices) {
      if (slice.count == 0) continue;
      std::memcpy(packed, element_at(with.own, slice.first, task.element), slice.count * task.element);
      packed += slice.count * task.element;
    }
    own_ = gathered(self_);
  }
  line_ = 0;
  if (!task.shows(self_)) return;
  if (task.kind == Step::Kind::host_barrier)
    tag_of(room_.lines(self_, number)).store(tag_, std::memory_order_release);
  else if (task.kind == Step::Kind::host_reduce_scatter && task.only < 0) {  // nobody reads my own slice
    write({0, mine_.begin});
    write({std::max(mine_.end, round_up(mine_.begin, kLinePayload)), own_bytes_});  // no line twice
    bytes_shown_ += own_bytes_ - (mine_.end - mine_.begin);
  } else {
    write({0, own_bytes_});
    bytes_shown_ += own_bytes_;
  }
}

/// Writes the lines that hold any of `span`.
void Lines::write(Span span) {
  if (span.begin >= span.end) return;
  const std::size_t first = span.begin / kLinePayload;
  std::byte* line = room_.lines(self_, number_) + first * kLineBytes;
  for (std::size_t at = first * kLinePayload; at < span.end; at += kLinePayload, line += kLineBytes) {
    copy_payload(line, own_ + at, own_bytes_ - at);
    tag_of(line).store(tag_, std::memory_order_release);
  }
}

/// Takes in what this rank needs of a peer's payload, to where it stays if it is not combined; false while a line is
/// missing.
bool Lines::read(int local) {
  const Span span = task_->combines() ? mine_ : payload(local);
  const std::size_t end = task_->kind == Step::Kind::host_barrier ? 1 : lines_for(span.end);
  std::byte* const from = room_.lines(local, number_);
  const bool stays = !task_->combines() && task_->kind != Step::Kind::host_barrier;
  std::byte* const to = stays ? element_at(with_->keep, task_->slice(local).first, task_->element) : gathered(local);
  line_ = std::max(line_, span.begin / kLinePayload);
  for (; line_ < end; ++line_) {
    std::byte* const line = from + line_ * kLineBytes;
    if (!has_come(tag_of(line).load(std::memory_order_acquire), tag_, local)) return false;
    copy_payload(to + line_ * kLinePayload, line, span.end - line_ * kLinePayload);
  }
  line_ = 0;
  return true;
}

bool Lines::advance() {
  for (; reading_ < ranks_; ++reading_) {
    if (!wants(reading_)) continue;
    for (int looks = 1; !read(reading_); ++looks)
      if (looks == kLooks) return false;
  }
  finish();
  return true;
}

void Lines::finish() {
  if (task_->kind == Step::Kind::host_barrier) return;
  const std::size_t element = task_->element;
  if (!task_->combines()) {
    const Range& slice = task_->slice(self_);
    std::byte* const to = element_at(with_->keep, slice.first, element);
    if (slice.count > 0 && own_ != to) std::memcpy(to, own_, slice.count * element);
    return;
  }
  // Slices that lie side by side in the vector as well are combined in one go.
  std::size_t at = mine_.begin;
  for (int local = 0; local < ranks_ && at < mine_.end; ++local) {
    const Range& slice = task_->slice(local);
    if (slice.count == 0 || (task_->kind == Step::Kind::host_reduce_scatter && local != self_)) continue;
    const std::size_t bytes = task_->adjacent ? mine_.end - at : slice.count * element;
    for (int from = 0; from < ranks_; ++from)
      sources_[static_cast<std::size_t>(from)] = {(from == self_ ? own_ : gathered(from)) + at, with_->raw};
    fold(with_->op, with_->type, sources_, element_at(with_->keep, slice.first, element), bytes / element,
         with_->finish_ranks);
    at += bytes;
  }
}

}  // namespace collectives
