// Implementation of PipelinedCopy: copies between a GPU and CPU memory that overlap with the rounds of a call.
//
// A part is a range of the vector: the range of one rank, or the whole vector if the algorithm does not divide it. A
// round performs all Steps (the single actions of a rank) on one segment of each part. A group is the data of several
// rounds, which are copied together. A piece is the range of one part that a group copies.
#include "device/pipelined_copy.hpp"

#include <algorithm>

namespace collectives {
namespace {

/// Minimum bytes of a group and of a piece, because each copy has a start-up cost. The last group and the last pieces
/// may be shorter.
constexpr std::size_t kGroupBytes = 1 << 20, kPieceBytes = 128 << 10;
/// Number of groups that are copied to CPU memory ahead of the group that this rank needs.
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

/// Calls `copy` for each piece of a group. The segments of one part in consecutive rounds are adjacent, so they form
/// one piece.
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
