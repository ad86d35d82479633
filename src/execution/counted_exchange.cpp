// Implementation of the counted exchange, which performs all_to_all_v, gather_v and scatter_v.
//
// A block consists of the elements that one rank sends to another. A program passes to these calls only the counts of
// the blocks that its rank sends or receives. In the first phase, each pair of ranks exchanges records with the counts.
// If the counts of a pair differ, both ranks throw an error. In the second phase, the ranks exchange the blocks. The
// records also hold lengths of blocks, so that all ranks know the longest block. Its length determines into how many
// segments the ranks cut each block.
#include "execution/counted_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collectives/error.hpp"
#include "hierarchical/all_to_all.hpp"
#include "planning/plan_call.hpp"

namespace collectives {
namespace {

void emit_blocks(const RankView& view, const RoundArgs& args, StepSink& run) {
  hierarchical::Pairwise::all_to_all(view, args, run);
}
constexpr Algorithm kBlocks = phase_algorithm("counted_exchange", emit_blocks);

/// Fills in the number of rounds, and how many of them overlap. A round handles one segment of each block. A round
/// consists of `depths` groups of Steps. Each group waits for the previous group. At most `max` rounds overlap.
void plan_rounds(Plan& plan, std::size_t longest, std::size_t depths, std::size_t max) {
  plan.rounds = std::max<std::size_t>(1, (longest + plan.segment - 1) / plan.segment);
  const std::size_t in_flight = std::clamp<std::size_t>(max, 1, depths);
  plan.issue_interval = (depths + in_flight - 1) / in_flight;
  plan.rounds_in_flight = (depths + plan.issue_interval - 1) / plan.issue_interval;
}

}  // namespace

CountedExchange::CountedExchange(const RankView& view, const Topology& topology, const TuningParameters& tuning)
    : view_(view), tuning_(tuning), one_host_(topology.one_host()) {
  const Request request{
      .collective = Collective::all_to_all, .count = kWords * view.world.members.size(), .type = DataType::u64};
  plan_of_records_ = plan_call(request, topology, tuning, nullptr).plan;
  plan_of_blocks_.algorithm = &kBlocks;
}

void CountedExchange::Layout::clear(std::size_t ranks) {
  firsts.assign(ranks, 0);
  ends.assign(ranks, 0);
}

void CountedExchange::Layout::assign(const PartLayout& parts) {
  clear(parts.counts.size());
  for (std::size_t r = 0, end = 0; r < firsts.size(); ++r) {
    firsts[r] = parts.displacements.empty() ? end : parts.displacements[r];
    ends[r] = end = firsts[r] + parts.counts[r];
  }
}

/// Computes `held`, the smallest range that contains all blocks. Ignores empty blocks, because the program may pass any
/// displacement for them.
void CountedExchange::Layout::hold() {
  std::size_t first = std::numeric_limits<std::size_t>::max(), end = 0;
  for (std::size_t r = 0; r < firsts.size(); ++r) {
    if (firsts[r] == ends[r]) continue;
    first = std::min(first, firsts[r]);
    end = std::max(end, ends[r]);
  }
  held = end == 0 ? Range{} : Range{first, end - first};
  for (std::size_t r = 0; r < firsts.size(); ++r)
    if (firsts[r] == ends[r]) firsts[r] = ends[r] = held.first;
}

void CountedExchange::read_layouts(const Call& call) {
  const auto ranks = static_cast<std::size_t>(view_.world.size());
  const auto self = static_cast<std::size_t>(view_.world.self), root = static_cast<std::size_t>(call.root);
  const PartLayout parts(call.counts, call.displacements);
  sources_.clear(ranks);
  destinations_.clear(ranks);
  swaps_ = call.collective == Collective::all_to_all;
  if (swaps_) {
    sources_.assign(call.input_parts);
    destinations_.assign(parts);
  } else if (call.collective == Collective::gather) {
    sources_.ends[root] = call.input.count;
    if (self == root) destinations_.assign(parts);
  } else {
    destinations_.ends[root] = call.output.count;
    if (self == root) sources_.assign(parts);
  }
  sources_.hold();
  destinations_.hold();
}

void CountedExchange::start(const Call& call, DataType type, Job& job) {
  read_layouts(call);
  type_ = type;
  input_ = static_cast<const std::byte*>(call.input.data);
  output_ = static_cast<std::byte*>(call.output.data);
  const auto ranks = static_cast<std::size_t>(view_.world.size());
  std::size_t longest = 0;
  for (std::size_t r = 0; r < ranks; ++r) longest = std::max({longest, sources_[r].count, destinations_[r].count});
  out_.resize(ranks);
  in_.resize(ranks);
  for (std::size_t r = 0; r < ranks; ++r)
    out_[r] = {sources_[r].count, destinations_[r].count, longest, sources_[r].first - sources_.held.first,
               destinations_[r].first - destinations_.held.first};
  restart(job);
}

void CountedExchange::restart(Job& job) {
  all_here_ = false;
  job.plan = &plan_of_records_;
  job.args = {{.collective = Collective::all_to_all}, Parts::equal({0, kWords * out_.size()}, view_.world.size())};
  job.op = ReduceOp::sum;
  job.type = DataType::u64;
  job.codec = nullptr;
  job.single_step = nullptr;
  job.input = reinterpret_cast<const std::byte*>(out_.data());
  job.output = reinterpret_cast<std::byte*>(in_.data());
}

bool CountedExchange::next(Job& job) {
  if (all_here_) return false;
  all_here_ = true;
  check_counts();
  blocks_.longest = std::ranges::max(in_, {}, &Record::longest).longest;
  if (blocks_.longest == 0) return false;
  describe_blocks(job);
  return true;
}

/// Compares this rank's counts with those of every other rank. Throws Error{mismatch} if they differ.
void CountedExchange::check_counts() const {
  const Rank self = view_.world.self;
  for (Rank peer = 0; peer < view_.world.size(); ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (in_[at].sends != out_[at].expects) refuse(peer, self, in_[at].sends, out_[at].expects);
    if (in_[at].expects != out_[at].sends) refuse(self, peer, out_[at].sends, in_[at].expects);
  }
}

void CountedExchange::refuse(Rank sender, Rank receiver, std::uint64_t sent, std::uint64_t expected) const {
  const Rank self = view_.world.self;
  throw Error(Errc::mismatch,
              fmt::format("rank {} sends {} {} to rank {}, which expects {}", sender, sent,
                          type_ == DataType::u8 ? "bytes" : "elements", receiver, expected),
              self, sender == self ? receiver : sender);
}

void CountedExchange::describe_blocks(Job& job) {
  const auto ranks = static_cast<std::size_t>(view_.world.size());
  peer_sources_.clear(ranks);
  peer_destinations_.clear(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    peer_sources_.firsts[r] = in_[r].source_first;
    peer_sources_.ends[r] = in_[r].source_first + in_[r].sends;
    peer_destinations_.firsts[r] = in_[r].destination_first;
    peer_destinations_.ends[r] = in_[r].destination_first + in_[r].expects;
  }
  blocks_.incoming = destinations_.parts();
  blocks_.peer_sources = peer_sources_.parts();
  blocks_.peer_destinations = peer_destinations_.parts();
  blocks_.source_held = sources_.held;
  blocks_.destination_held = destinations_.held;
  blocks_.swaps = swaps_;
  job.plan = &plan_of_blocks_;
  job.args = {{.collective = Collective::all_to_all}, sources_.parts(), 0, destinations_.parts(), &blocks_};
  job.type = type_;
  job.input = input_;
  job.output = output_;
  plan_of_blocks_.segment =
      one_host_ ? blocks_.longest : std::max<std::size_t>(1, tuning_.wire_frame_bytes / size_of(job.type));
  plan_rounds(plan_of_blocks_, blocks_.longest,
              static_cast<std::size_t>(hierarchical::Pairwise::depths(view_.world.size())),
              one_host_ || tuning_.wire_frames <= 2 ? 1 : tuning_.wire_frames - 1);
}

}  // namespace collectives
