#include "shared_memory/lines.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace collectives {
namespace {

/// How often in a row a rank looks for a line that has not come: the way up to whoever waits and back costs as much.
constexpr int kLooks = 8;

constexpr std::size_t kWords = kLinePayload / sizeof(std::uint64_t);

constexpr std::size_t lines_for(std::size_t bytes) { return (bytes + kLinePayload - 1) / kLinePayload; }

/// The words of one line. Payload words are atomic too: a reader may look while the writer is at work.
std::atomic_ref<std::uint64_t> word(std::byte* line, std::size_t index) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(line)[index]);
}

/// `bytes` bytes of payload, all that a line holds if there are more. Whole words but for the last.
void write_line(std::byte* line, const std::byte* from, std::size_t bytes) {
  const auto whole = [&](std::size_t w) {
    std::uint64_t value;
    std::memcpy(&value, from + w * sizeof value, sizeof value);
    word(line, w).store(value, std::memory_order_relaxed);
  };
  if (bytes >= kLinePayload) {
    for (std::size_t w = 0; w < kWords; ++w) whole(w);
    return;
  }
  std::size_t w = 0;
  for (; w < bytes / sizeof(std::uint64_t); ++w) whole(w);
  if (const std::size_t rest = bytes % sizeof(std::uint64_t); rest > 0) {
    std::uint64_t value = 0;
    std::memcpy(&value, from + w * sizeof value, rest);
    word(line, w).store(value, std::memory_order_relaxed);
  }
}

/// The same words back; `to` has room for a whole payload.
void read_line(std::byte* to, std::byte* line, std::size_t bytes) {
  const auto whole = [&](std::size_t w) {
    const std::uint64_t value = word(line, w).load(std::memory_order_relaxed);
    std::memcpy(to + w * sizeof value, &value, sizeof value);
  };
  if (bytes >= kLinePayload) {
    for (std::size_t w = 0; w < kWords; ++w) whole(w);
    return;
  }
  for (std::size_t w = 0; w * sizeof(std::uint64_t) < bytes; ++w) whole(w);
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
    word(room_.lines(self_, number), kWords).store(tag_, std::memory_order_release);
  else if (task.kind == Step::Kind::host_reduce_scatter && task.only < 0) {  // nobody reads my own slice
    write({0, mine_.begin});
    write({mine_.end, own_bytes_});
  } else {
    write({0, own_bytes_});
  }
}

/// Writes the lines that hold any of `span`.
void Lines::write(Span span) {
  if (span.begin >= span.end) return;
  const std::size_t first = span.begin / kLinePayload;
  std::byte* line = room_.lines(self_, number_) + first * kLineBytes;
  for (std::size_t at = first * kLinePayload; at < span.end; at += kLinePayload, line += kLineBytes) {
    write_line(line, own_ + at, own_bytes_ - at);
    word(line, kWords).store(tag_, std::memory_order_release);
  }
  bytes_shown_ += span.end - span.begin;
}

/// Takes in what this rank needs of a peer's payload; false while a line is missing.
bool Lines::read(int local) {
  const Span span = task_->combines() ? mine_ : payload(local);
  const std::size_t end = task_->kind == Step::Kind::host_barrier ? 1 : lines_for(span.end);
  std::byte* const from = room_.lines(local, number_);
  std::byte* const to = gathered(local);
  line_ = std::max(line_, span.begin / kLinePayload);
  for (; line_ < end; ++line_) {
    std::byte* const line = from + line_ * kLineBytes;
    if (!has_come(word(line, kWords).load(std::memory_order_acquire), tag_, local)) return false;
    read_line(to + line_ * kLinePayload, line, span.end - line_ * kLinePayload);
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
    for (int local = 0; local < ranks_; ++local) {
      const Range& slice = task_->slice(local);
      std::byte* const to = element_at(with_->keep, slice.first, element);
      const std::byte* const from = local == self_ ? own_ : gathered(local);
      if (slice.count > 0 && from != to) std::memcpy(to, from, slice.count * element);
    }
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
