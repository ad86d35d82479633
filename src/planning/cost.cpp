// Implementation of the cost model, which estimates how long an algorithm takes.
//
// The model runs the algorithm without data, and counts the Steps of each rank. A Step is one action of a rank, such as
// to receive a message and add it. From the counts, the model computes the time of the rank with the most work, and the
// time for which the busiest link carries bytes. A link connects a host to the network. All ranks of the host share the
// link.
//
// A long vector is cut into segments. Each round performs all Steps on one segment. Several rounds may overlap: the
// links carry bytes of one round while the cores work on another.
#include "planning/cost.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include "core/collective.hpp"
#include "core/tuning.hpp"
#include "planning/critical_path.hpp"

namespace collectives {

/// Returns how idle the cores are while links carry bytes, from 0 (busy) to 1 (idle). The result depends on a ratio:
/// the time for which links carry the bytes, divided by the time in which the cores copy them. The result is 0 up to a
/// ratio of 5, and 1 from a ratio of 9 on. Between these ratios, the result grows linearly.
///
/// Reason for the ratios: with idle cores, short messages are faster than long ones. In a measurement with 4 hosts on
/// two cores, a call on 1 MiB used messages of 32 to 64 KiB (bench/results/hosts.txt). At 1 Gbit/s, the ratio was 10,
/// and these messages were 4 to 8 % faster than longer messages. At 2 Gbit/s, the ratio was 5, and these messages were
/// 4 to 8 % slower.
double Cost::idleness() const {
  constexpr double kBusy = 5, kIdle = 9;
  return std::clamp((chain / std::max(1e-9, copies) - kBusy) / (kIdle - kBusy), 0.0, 1.0);
}

double Cost::microseconds(std::size_t rounds, std::size_t rounds_in_flight) const {
  const auto r = static_cast<double>(rounds);
  const double messages = r * std::max(handling, machine);
  const double busiest = std::max(wire, work + copies + messages);
  const double carried = std::max(chain, copies);
  // Rounds follow one another from rank to rank. The first round takes the time of the whole path. Each further round
  // ends one interval later: the time that the slowest link or rank takes for one round.
  if (flows) {
    const double each = std::max({wire / r, (work + copies + messages) / r + inside, per_frame});
    return waits + std::max(handling, machine) + (work + carried) / r + (r - 1) * each;
  }
  // In all other collectives, all ranks send at the same time and then wait for one another. Cores therefore handle
  // messages before and after links carry them, and the times add up.
  //
  // Exception: several messages share one link at the same time. If the link time is much longer than the handling of
  // all messages, cores handle all but the first while the link carries data. The limits were measured with 2 hosts of
  // 2 ranks (bench/results/hosts.txt). With messages of 4 KiB, the link time is 1.7 times the handling, and no handling
  // is hidden. With 8 KiB all is hidden. Reason: after one round, the ranks of a host send at different times. The link
  // carries the data of one rank while a core handles a message of another.
  constexpr double kHidesNothing = 1.7, kHidesAll = 2.1;
  const double hides = (chain - copies - kHidesNothing * messages) / (kHidesAll - kHidesNothing);
  const double hidden = (1 - std::pow(burst, -hops)) * std::clamp(hides, 0.0, messages);
  const double all = r * waits + messages + work + carried + idleness() * late - hidden;
  if (rounds_in_flight <= 1 || rounds <= 1) return all;
  // The first round overlaps with no round before it.
  return std::max(busiest, all / static_cast<double>(rounds_in_flight)) + std::max(0.0, all - busiest) / r;
}

namespace {

/// Maximum number of ranks whose Steps are counted. With more ranks, a sample is counted.
constexpr std::size_t kCountAllUpTo = 64;

/// Counts the work of the Steps of one rank.
class Counter final : public StepSink {
 public:
  Counter(const RankView& view, const Coding& coding, const TuningParameters& tuning)
      : view_(view), coding_(coding), tuning_(tuning) {}

  void operator()(const Step& step) override {
    if (step.kind != Step::Kind::exchange) return count_host(step);
    const std::size_t plain = step.range.count * coding_.element;
    const double in = count_messages(step.from, coding_.bytes(received_elements(step)), false);
    const double out = count_messages(step.to, coding_.bytes(sent_elements(step)), true);
    cost.work += std::max(in, out) + static_cast<double>(plain * terms(step)) * tuning_.reduce_us_per_byte +
                 static_cast<double>(plain * coding_.codings(step)) * tuning_.coding_us_per_byte;
  }

  Cost cost;  ///< cost of this rank, without link times
  std::size_t messages = 0, bytes_sent = 0, bytes_to_other_hosts = 0, bytes_from_other_hosts = 0;
  std::size_t ends = 0;          ///< messages sent to or received from other hosts
  bool several_streams = false;  ///< sends to more than one rank of other hosts
  double waits_for_work = 0;     ///< microseconds of the work in which an average rank only waits

 private:
  /// Counts the messages with all peers. Returns the time for bytes that stay inside the host.
  double count_messages(Peers peers, std::size_t bytes, bool out) {
    double per_byte = 0;
    bool awaited = false;
    for (const Rank peer : peers) {
      if (peer == view_.world.self) continue;
      if (view_.host_of(peer) != view_.grid.host) {
        ++ends;
        if (out && sent_to_.value_or(peer) != peer) several_streams = true;
        if (out) sent_to_ = peer;
        cost.handling += tuning_.wire_message_us;
        cost.copies += static_cast<double>(bytes) * tuning_.wire_work_us_per_byte;
        awaited = awaited || !out;
        (out ? bytes_to_other_hosts : bytes_from_other_hosts) += bytes;
      } else {
        cost.waits += tuning_.message_us / 2;  // the sender counts one half, the receiver the other
        cost.inside += tuning_.message_us / 2;
        per_byte += static_cast<double>(bytes) * tuning_.message_us_per_byte;
      }
      if (!out) continue;
      ++messages;
      bytes_sent += bytes;
    }
    if (awaited) cost.waits += tuning_.wire_us;  // messages that are sent at the same time arrive together
    return per_byte;
  }

  void count_host(const Step& step) {
    const double times = step.kind == Step::Kind::host_all_reduce ? 2 : 1;
    const HostStepWork elements = host_step_work(step, view_.members(step.subgroup).size());
    const auto bytes = static_cast<double>(elements.longest * coding_.element);
    cost.waits += times * tuning_.host_latency_us;
    cost.inside += times * tuning_.host_latency_us;
    cost.work += times * bytes * tuning_.host_us_per_byte;
    waits_for_work +=
        times * static_cast<double>((elements.longest - elements.average) * coding_.element) * tuning_.host_us_per_byte;
    // A domain is a part of the host whose ranks share a cache or a socket. If bytes go to all D domains alike, one
    // D-th of them stays in its own domain.
    const int domains = view_.inner.host_count();
    if (domains < 2 || step.subgroup == Subgroup::domain) return;
    cost.waits += times * tuning_.domain_us;
    cost.inside += times * tuning_.domain_us;
    cost.work += times * bytes * tuning_.domain_us_per_byte * (domains - 1) / domains;
  }

  const RankView& view_;
  const Coding coding_;
  const TuningParameters& tuning_;
  std::optional<Rank> sent_to_;  // the last receiver on another host
};

/// Returns the ranks whose Steps are counted, at most 64. If there are more ranks, the root and the ranks of four hosts
/// are counted. These are the largest host, the first, the last and the root's.
///
/// The busiest ranks are among them. Reason: algorithms treat the other hosts alike if they are equally large. They
/// also treat all but the first ranks of a host alike.
std::vector<Rank> counted_ranks(const Topology& topology, Rank root) {
  std::vector<Rank> ranks{root};
  std::vector<const std::vector<Rank>*> counted;
  const auto add = [&](const std::vector<Rank>& host) {
    if (std::ranges::find(counted, &host) != counted.end()) return;
    counted.push_back(&host);
    std::ranges::copy_if(host, std::back_inserter(ranks), [&](Rank rank) { return rank != root; });
  };
  const auto& hosts = topology.hosts;
  const auto size = [](const std::vector<Rank>& host) { return host.size(); };
  if (static_cast<std::size_t>(topology.ranks()) <= kCountAllUpTo) {
    for (const auto& host : hosts) add(host);
  } else {
    add(*std::ranges::max_element(hosts, {}, size));
    add(hosts.front());
    add(hosts.back());
    add(*std::ranges::find_if(hosts, [&](const auto& host) { return std::ranges::binary_search(host, root); }));
    ranks.resize(std::min(ranks.size(), kCountAllUpTo));
  }
  return ranks;
}

/// Total work of all ranks. If only a sample of the ranks is counted, their work is multiplied accordingly.
struct Together {
  double ends = 0;    ///< messages sent to or received from other hosts
  double bytes = 0;   ///< bytes sent to other hosts
  double work = 0;    ///< microseconds for bytes inside hosts, and for arithmetic
  double copies = 0;  ///< microseconds for copies of bytes between hosts
};

/// Fraction of the copying time for which links stand still, if there are more ranks than cores. A link stands still
/// when its next sender waits for a core. Another round may keep the link busy instead.
///
/// The value comes from a measurement with 4 hosts of one rank on two cores (bench/results/hosts.txt). A round of 1 MiB
/// takes 3 % longer than the links need, and the cores are busy for 10 % of that time.
constexpr double kLate = 0.5;

/// Adds the cost of sharing cores. Hosts may be namespaces or containers of one machine that has fewer cores than
/// ranks.
///
/// A round then ends only after these cores have done the work of all ranks of the machine. They do some of that work
/// while other ranks wait for links.
void share_cores(Cost& cost, const Together& all, const Topology& topology, const TuningParameters& tuning) {
  const double to_a_core = topology.ranks_to_a_core();
  if (to_a_core <= 1) return;
  const double share = to_a_core / topology.ranks();
  cost.machine = share * all.ends * message_inside_machine_us(tuning);
  cost.work = std::max(cost.work, share * all.work);
  cost.copies = std::max(cost.copies, share * all.copies);
  cost.late = kLate * cost.copies;
}

/// Factor of the link time if a rank sends to several peers in turn and rounds overlap. Links are then used less well
/// than in a ring. The connection to a peer starts slowly after a pause. Connections that share a link slow each other
/// down.
///
/// The value was measured with 2 MiB on 4 hosts (bench/results/hosts.txt). Halving takes 5 % longer than the ring,
/// which sends as many bytes. Other measurements gave 0 to 4 %.
constexpr double kSeveralStreams = 1.05;

}  // namespace

Cost cost_of(const Algorithm& algorithm, const RoundArgs& args, const Coding& coding, const Topology& topology,
             const TuningParameters& tuning, Estimate& estimate) {
  Cost cost;
  estimate.algorithm = algorithm.name;
  std::vector<std::size_t> out(topology.hosts.size(), 0), in(topology.hosts.size(), 0);
  Together all;
  bool several_streams = false;
  const std::vector<Rank> ranks = counted_ranks(topology, args.root);
  for (const Rank rank : ranks) {
    const RankView view(topology, rank);
    Counter counter(view, coding, tuning);
    algorithm.emit(view, args, counter);
    const auto total = [](const Cost& c) { return c.waits + c.handling + c.work + c.copies; };
    if (total(counter.cost) > total(cost)) cost = counter.cost;
    all.ends += static_cast<double>(counter.ends);
    all.bytes += static_cast<double>(counter.bytes_to_other_hosts);
    all.work += counter.cost.work - counter.waits_for_work;
    all.copies += counter.cost.copies;
    several_streams = several_streams || counter.several_streams;
    estimate.messages = std::max(estimate.messages, counter.messages);
    estimate.bytes_sent = std::max(estimate.bytes_sent, counter.bytes_sent);
    out[static_cast<std::size_t>(view.grid.host)] += counter.bytes_to_other_hosts;
    in[static_cast<std::size_t>(view.grid.host)] += counter.bytes_from_other_hosts;
  }
  std::optional<CriticalPath> path;
  if (!topology.one_host()) path = critical_path(algorithm, args, coding, topology, tuning);
  const double more = static_cast<double>(topology.ranks()) / static_cast<double>(ranks.size());
  all = {more * all.ends, more * all.bytes, more * all.work, more * all.copies};
  if (path) {
    cost.waits = std::max(0.0, path->latency - cost.handling);
    all.ends = 2 * static_cast<double>(path->messages);
    all.bytes = path->bytes;
    const double to_a_link = static_cast<double>(path->messages) / static_cast<double>(topology.hosts.size());
    cost.hops = std::max(1.0, path->hops);
    cost.burst = std::max(1.0, to_a_link / cost.hops);
  }
  share_cores(cost, all, topology, tuning);
  cost.flows = !topology.one_host() &&
               (has_root(args.collective) || (is_scan(args.collective) && !args.needs_unreduced_exchange()));
  cost.per_frame = tuning.wire_us / static_cast<double>(tuning.wire_frames);
  estimate.bytes_between_hosts = std::ranges::max(out);
  // Not all ranks of a large host have been counted. The busiest host does at least the average.
  if (path)
    estimate.bytes_between_hosts =
        std::max(estimate.bytes_between_hosts, static_cast<std::size_t>(path->bytes) / out.size());
  cost.wire =
      static_cast<double>(std::max(estimate.bytes_between_hosts, std::ranges::max(in))) * tuning.wire_us_per_byte;
  // The total of all links is limited, too, by switches or by cores.
  cost.wire =
      std::max(cost.wire, all.bytes * tuning.wire_together_us_per_byte / static_cast<double>(topology.hosts.size()));
  cost.chain = std::max(cost.wire, path ? path->wire : 0);
  if (several_streams) cost.wire *= kSeveralStreams;
  return cost;
}

}  // namespace collectives
