// Implementation of host tasks. A host task describes a collective that the ranks of one host perform through shared
// memory. This file computes the slice of each rank, which is a range of the vector. It also chooses the protocol, that
// is, the way in which the ranks exchange data. The head of host_collective.hpp lists the protocols.
//
// The choice depends on the collective, the length of the vector, the numbers of ranks and cores, and the tuning. Zero
// copy, in which ranks access the buffers of their peers by pointers, is a special case. A task has a flag that permits
// zero copy. If the flag is set and every rank can map all buffers, zero copy replaces the chosen protocol.
#include "shared_memory/host_task.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/round_up.hpp"
#include "base/text.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {
namespace {

/// Returns the maximum number of bytes that one rank publishes by the inline protocol. This protocol carries values in
/// cache lines, called lines. A rank publishes its whole vector if values are combined. Otherwise it publishes only its
/// slice. In an all-to-all, the values for each rank begin with a new line.
std::size_t shown_bytes(const HostTask& task) {
  if (task.deals())
    return task.slices.size() * round_up(std::max<std::size_t>(1, task.longest * task.element), kLinePayload);
  if (!task.scatters()) return (task.combines() ? task.total : task.longest) * task.element;
  std::size_t bytes = 0;  // sum of all slices except that of the root; each slice begins with a new line
  for (int local = 0; local < task.ranks(); ++local)
    if (local != task.root) bytes += round_up(task.slice(local).count * task.element, kLinePayload);
  return bytes;
}

/// Returns the maximum number of bytes that a rank may publish by the inline protocol. For longer data, the staged
/// protocol is faster, because lines cost more time per byte. Every peer reads the lines of a rank, so the function
/// divides TuningParameters::inline_bytes by the number of peers. It halves the limit if each rank both publishes
/// values and needs the values of all ranks.
///
/// In a scatter or all-to-all, one rank reads each line. The function then returns inline_bytes undivided.
std::size_t inline_limit(const HostTask& task, const TuningParameters& tuning) {
  if (task.scatters() || task.deals()) return tuning.inline_bytes;
  const std::size_t others = std::max<std::size_t>(1, task.slices.size() - 1);
  return tuning.inline_bytes / others / (task.every_rank_wants_all() && task.root < 0 ? 2 : 1);
}

/// Returns the maximum length in bytes of an all-reduce by the one-shot protocol. One shot saves a synchronization, but
/// every rank reads the vectors of all ranks and combines all elements. Between two ranks, one shot moves no more bytes
/// than the staged protocol. Among more ranks it moves more bytes, so the limit is lower. If the host has fewer cores
/// than ranks, the limit is higher for four or more ranks. Reason: every synchronization then waits until each rank has
/// run on a core.
std::size_t one_shot_limit(int ranks, bool oversubscribed, const TuningParameters& tuning) {
  if (ranks <= 2) return tuning.one_shot_bytes;
  const std::size_t bytes =
      oversubscribed && ranks > 3 ? tuning.one_shot_bytes_oversubscribed : tuning.one_shot_bytes_of_many;
  return bytes == Tuning::kNever ? bytes : bytes / static_cast<std::size_t>(ranks - 1);
}

/// Returns twice the length in bytes of the longest share. A share is the range that one rank works on in the
/// single-copy protocol. With two equal shares, the result is the length of the vector. Reason: limits of this protocol
/// are stated for two ranks.
std::size_t copied_bytes(const HostTask& task) {
  const std::size_t share = task.has_one_owner() ? task.total / static_cast<std::size_t>(task.ranks()) : task.longest;
  return 2 * share * task.element;
}

/// Returns the limit of copied_bytes() from which on the single-copy protocol is used. In this protocol, the kernel
/// copies between processes. If each rank has a core, all ranks copy at the same time, which may be faster than
/// staging. If there are fewer cores, staging is better, because a rank that runs stages the data that its sleeping
/// peers will need. Staging is also better for vectors that exceed the caches: its streaming stores need not fetch the
/// old lines first.
std::size_t single_copy_limit(const HostTask& task, bool oversubscribed, const TuningParameters& tuning) {
  if (oversubscribed || task.stores == Stores::streaming || task.scans()) return Tuning::kNever;
  return task.combines() ? tuning.single_copy_reduce_bytes : tuning.single_copy_bytes;
}

/// Returns the limit in bytes from which on zero copy is used if all buffers are mapped. Zero copy takes two
/// synchronizations, a staged gather one. If there are more ranks than cores, a synchronization waits until each rank
/// has had its turn on a core. The limit of gathers is therefore higher.
std::size_t zero_copy_limit(const HostTask& task, bool oversubscribed, const TuningParameters& tuning) {
  if (!oversubscribed || task.combines()) return tuning.zero_copy_bytes;
  return std::max(tuning.zero_copy_bytes, tuning.zero_copy_bytes_oversubscribed);
}

HostProtocol choose(const HostTask& task, bool oversubscribed, const TuningParameters& tuning) {
  if (task.kind == Step::Kind::host_barrier) return HostProtocol::inlined;
  const std::size_t total = task.total * task.element;
  if (total > 0 && copied_bytes(task) >= single_copy_limit(task, oversubscribed, tuning))
    return HostProtocol::single_copy;
  if (shown_bytes(task) <= inline_limit(task, tuning)) return HostProtocol::inlined;
  if (task.scans()) return HostProtocol::one_shot;  // the vectors of all ranks before a rank, and no results of peers
  if (task.kind == Step::Kind::host_all_reduce && total <= one_shot_limit(task.ranks(), oversubscribed, tuning))
    return HostProtocol::one_shot;
  return HostProtocol::staged;
}

}  // namespace

Range HostTask::held(int local, bool destination) const {
  if (deals() && !blocks.empty()) return destination ? destination_held : source_held;
  const bool rooted = gathers() || scatters();
  if (rooted && gathers() == destination && local != root) return {};
  if (scans() && destination && terms(local) == 0) return {};
  const bool all_slices = deals() || (rooted        ? gathers() == destination
                                      : destination ? every_rank_wants_all()
                                                    : combines());
  if (!all_slices) return slice(local);
  Range all{};  // from the first element of any slice to the last one
  for (const Range& one : slices) {
    if (one.count == 0) continue;
    if (all.count == 0) all = one;
    const std::size_t first = std::min(all.first, one.first);
    all = {first, std::max(all.first + all.count, one.first + one.count) - first};
  }
  return all;
}

Range HostTask::accessible(int self, int local, bool destination) const {
  if (blocks.empty() || local == self) return held(local, destination);
  const BlockRanges& ranges = blocks[static_cast<std::size_t>(local)];
  const Range& block = destination ? ranges.peer_destination : ranges.peer_source;
  return {0, block.count == 0 ? 0 : block.first + block.count};
}

std::string_view to_string(HostProtocol protocol) noexcept {
  switch (protocol) {
    case HostProtocol::inlined: return "inline";
    case HostProtocol::one_shot: return "one-shot";
    case HostProtocol::staged: return "staged";
    case HostProtocol::single_copy: return "single-copy";
  }
  return "?";
}

std::string reason(const HostTask& task, bool oversubscribed, const TuningParameters& tuning) {
  const auto limit = [](std::size_t bytes) { return bytes == Tuning::kNever ? "any length" : bytes_text(bytes); };
  if (task.kind == Step::Kind::host_barrier) return "nothing but notice";
  const std::size_t total = task.total * task.element;
  const std::string_view staging = task.stores_to_staging == Stores::streaming ? ", staged past the caches" : "";
  switch (task.protocol) {
    case HostProtocol::inlined:
      return fmt::format("a rank shows {}, inline up to {}", bytes_text(shown_bytes(task)),
                         limit(inline_limit(task, tuning)));
    case HostProtocol::one_shot:
      if (task.scans()) return fmt::format("{} in all, more than inline{}", bytes_text(total), staging);
      return fmt::format("{} in all, one shot up to {} with {} ranks{}{}", bytes_text(total),
                         limit(one_shot_limit(task.ranks(), oversubscribed, tuning)), task.ranks(),
                         oversubscribed ? ", more than cores" : "", staging);
    case HostProtocol::single_copy:
      return fmt::format("{} at a time, {} by the kernel's copy from {}", bytes_text(copied_bytes(task) / 2),
                         task.combines() ? "reductions" : "gathers",
                         bytes_text(single_copy_limit(task, oversubscribed, tuning) / 2));
    case HostProtocol::staged: break;
  }
  return fmt::format("a rank shows {}, inline up to {}{}{}", bytes_text(shown_bytes(task)),
                     limit(inline_limit(task, tuning)), staging,
                     oversubscribed                     ? "; more ranks than cores"
                     : task.stores == Stores::streaming ? "; results past the caches unless in place"
                                                        : "");
}

namespace {

/// Describes the blocks of an all-to-all whose pairs have counts of their own. The numbers on which the protocol
/// depends become equal on all ranks.
void describe_blocks(const Step& step, HostTask& task) {
  task.swaps = step.blocks == nullptr || step.blocks->swaps;
  if (step.blocks == nullptr) return;
  const Parts incoming = step.blocks->incoming.in_round_of(step.parts);
  const Parts sources = step.blocks->peer_sources.in_round_of(step.parts);
  const Parts destinations = step.blocks->peer_destinations.in_round_of(step.parts);
  task.source_held = step.blocks->source_held;
  task.destination_held = step.blocks->destination_held;
  for (const Rank rank : step.owners) task.blocks.push_back({incoming[rank], sources[rank], destinations[rank]});
  task.longest = step.blocks->longest;
  task.total = task.longest * task.slices.size();
}

}  // namespace

void describe(const Step& step, std::size_t element_bytes, int ranks, bool oversubscribed,
              const TuningParameters& tuning, HostTask& task) {
  task.kind = step.kind;
  task.root = step.root;
  task.element = element_bytes;
  task.blocks.clear();
  task.slices.assign(static_cast<std::size_t>(ranks), Range{});
  if (step.has_one_owner())
    task.slices[static_cast<std::size_t>(step.root)] = step.parts[0];
  else
    for (std::size_t local = 0; local < std::min(task.slices.size(), step.owners.size()); ++local)
      task.slices[local] = step.parts[step.owners[local]];
  task.total = task.longest = 0;
  task.adjacent = true;
  const Range* before = nullptr;
  for (const Range& slice : task.slices) {
    if (slice.count == 0) continue;
    task.adjacent = task.adjacent && (before == nullptr || before->first + before->count == slice.first);
    before = &slice;
    task.total += slice.count;
    task.longest = std::max(task.longest, slice.count);
  }
  // Results bypass the caches if the inputs and outputs of all ranks exceed them, because the caches would evict the
  // results before they are read.
  const auto p = static_cast<std::size_t>(ranks);
  if (task.deals()) describe_blocks(step, task);
  const std::size_t inputs = task.combines() || task.deals() ? p : 1;
  const std::size_t outputs = task.every_rank_wants_all() || task.deals() ? p : 1;
  const std::size_t touched = task.total * task.element * (inputs + outputs);
  task.stores = touched >= tuning.streaming_bytes ? Stores::streaming : Stores::cached;
  task.stores_to_staging =
      task.total * task.element >= tuning.streamed_staging_bytes ? Stores::streaming : Stores::cached;
  task.protocol = choose(task, oversubscribed, tuning);
  task.zero_copy = task.total > 0 && task.total * task.element >= zero_copy_limit(task, oversubscribed, tuning);
}

}  // namespace collectives
