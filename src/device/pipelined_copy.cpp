// Implementation of PipelinedCopy, which copies a vector between a GPU and CPU memory while the CPU works on it.
//
// The CPU works in rounds. An algorithm divides the vector into one part per rank, or treats the whole vector as one
// part. A round processes one segment of each part. While the CPU performs one round, the GPU copies the segments of
// later rounds to CPU memory, and the results of earlier rounds back.
//
// Each copy has a start-up cost. The segments of several rounds are therefore copied together. These segments form a
// group. The segments of one part in a group are called a piece. They are adjacent in memory, so one copy moves a whole
// piece.
#include "device/pipelined_copy.hpp"

#include <algorithm>

namespace collectives {
namespace {

/// Minimum lengths in bytes of a group and of a piece, because each copy has a start-up cost. The last group and its
/// pieces may be shorter.
constexpr std::size_t kGroupBytes = 1 << 20, kPieceBytes = 128 << 10;
/// Number of groups that are copied to CPU memory ahead of the group on which the CPU works.
constexpr std::size_t kAhead = 4;

}  // namespace

PipelinedCopy::~PipelinedCopy() {
  for (const Device::Event event : events_) device_.end_event(event);
}

void PipelinedCopy::start(const Job& job, const Endpoints& endpoints) {
  endpoints_ = endpoints;
  parts_ = job.args.parts;
  element_ = element_bytes_of(job.type, job.op);
  rounds_ = job.plan->rounds;
  const std::size_t segment = rounds_ > 1 ? job.plan->segment : std::max<std::size_t>(parts_.longest(), 1);
  const std::size_t piece = std::max(kPieceBytes, kGroupBytes / static_cast<std::size_t>(std::max(parts_.size(), 1)));
  group_rounds_ = std::clamp<std::size_t>(piece / (segment * element_), 1, rounds_);
  group_segment_ = group_rounds_ * segment;
  groups_ = (rounds_ + group_rounds_ - 1) / group_rounds_;
  begun_ = ready_ = copied_back_ = 0;
  while (events_.size() <= kAhead) events_.push_back(device_.new_event());
  issue_ahead(0);
}

/// Calls `copy` for each piece of a group.
template <class Copy>
void PipelinedCopy::for_each_piece(std::size_t group, Copy&& copy) const {
  const Parts pieces = parts_.round(group_segment_, group);
  for (int p = 0; p < pieces.size(); ++p)
    if (const Range piece = pieces[p]; piece.count > 0) copy(piece.first * element_, piece.count * element_);
}

void PipelinedCopy::issue_ahead(std::size_t group) {
  for (const std::size_t end = std::min(groups_, group + 1 + kAhead); begun_ < end; ++begun_) {
    for_each_piece(begun_, [&](std::size_t at, std::size_t bytes) {
      device_.copy(endpoints_.pinned + at, endpoints_.from + at, bytes, endpoints_.to_host);
    });
    device_.record(events_[begun_ % events_.size()], endpoints_.to_host);
  }
}

bool PipelinedCopy::ready(std::size_t round) {
  const std::size_t group = round / group_rounds_;
  if (group < ready_) return true;
  issue_ahead(group);
  if (!device_.reached(events_[group % events_.size()])) return false;
  ready_ = group + 1;
  return true;
}

void PipelinedCopy::done(std::size_t rounds) {
  for (; copied_back_ < groups_ && std::min((copied_back_ + 1) * group_rounds_, rounds_) <= rounds; ++copied_back_)
    for_each_piece(copied_back_, [&](std::size_t at, std::size_t bytes) {
      device_.copy(endpoints_.to + at, endpoints_.pinned + at, bytes, endpoints_.to_device);
    });
}

}  // namespace collectives
