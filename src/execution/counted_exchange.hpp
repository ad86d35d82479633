// Counted exchange: an all_to_all_v, gather_v or scatter_v. A block consists of the elements that one rank sends to
// another. Each rank knows only the counts of the blocks that it sends or receives.
//
// The exchange has two phases:
//
//   records   all-to-all of short records: each rank sends to each other how many elements it sends to that rank and
//             how many it expects from it, and where these blocks lie in its buffers
//   blocks    all-to-all of the blocks
//
// After the first phase, both ranks of a pair compare their counts. If the counts differ, both ranks throw
// Error{mismatch}, before any block is sent. The error names both ranks and both counts. A record also holds the length
// of the longest block of its sender. All ranks therefore know the longest block of all, and cut their blocks into the
// same number of segments.
//
// In a gather_v, only blocks that the root receives have elements. In a scatter_v, only blocks that the root sends have
// elements.
//
// Price: the first phase adds the latency of one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/plan.hpp"
#include "core/call.hpp"
#include "core/tuning_parameters.hpp"
#include "execution/job.hpp"
#include "execution/multi_phase_operation.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class CountedExchange final : public MultiPhaseOperation {
 public:
  /// The arguments must outlive this object.
  CountedExchange(const RankView&, const Topology&, const TuningParameters&);
  CountedExchange(const CountedExchange&) = delete;  // a job points into the object
  CountedExchange& operator=(const CountedExchange&) = delete;

  /// Begins the exchange of a call with checked arguments, and describes the first phase in `job`, except for the tag.
  /// `type`: type of the elements. The lists of the call need not stay valid.
  void start(const Call& call, DataType type, Job& job);
  /// Begins the exchange of the last call again. Describes the first phase in `job`, except for the tag.
  void restart(Job& job);
  /// Describes the second phase. Throws Error{mismatch} if the counts of a pair differ.
  bool next(Job& job) override;
  void abandon() noexcept override {}
  void released() noexcept override {}

 private:
  /// Record that one rank sends to another. Numbers of elements; firsts count from the beginning of Layout::held.
  struct Record {
    std::uint64_t sends, expects, longest, source_first, destination_first;
  };
  static constexpr std::size_t kWords = sizeof(Record) / sizeof(std::uint64_t);
  /// Ranges in one buffer, by rank.
  struct Layout {
    std::vector<std::size_t> firsts, ends;
    Range held;  ///< from the first element of any range to the last
    void clear(std::size_t ranks);
    void assign(const PartLayout& parts);
    void hold();
    Range operator[](std::size_t rank) const { return {firsts[rank], ends[rank] - firsts[rank]}; }
    Parts parts() const { return Parts::displaced(firsts.data(), ends.data(), static_cast<int>(firsts.size())); }
  };

  void read_layouts(const Call& call);
  void check_counts() const;
  [[noreturn]] void refuse(Rank sender, Rank receiver, std::uint64_t sent, std::uint64_t expected) const;
  void describe_blocks(Job& job);

  const RankView& view_;
  const TuningParameters& tuning_;
  const bool one_host_;
  Plan plan_of_records_, plan_of_blocks_;
  DataType type_ = DataType::f32;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  bool swaps_ = false;     // whether a rank that works in place sends as many elements to a rank as it gets from it
  bool all_here_ = false;  // whether the current phase is the second one
  std::vector<Record> out_, in_;  // records by rank
  Layout sources_, destinations_, peer_sources_, peer_destinations_;
  Blocks blocks_;
};

}  // namespace collectives
