// Functions of ArrivalTable, which stores the calls that each rank has entered. They also list the ranks for which a
// call waits, as numbers and as text.
#include "monitoring/arrival_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/coarse_clock.hpp"
#include "base/text.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

// Age of a heartbeat above which its rank counts as silent. A heartbeat is the time at which a waiting rank last
// checked its peers.
constexpr auto kSilent = 200ms;

}  // namespace

std::string call_text(const CallInfo& call) {
  if (!call.operation.empty()) return std::string(call.operation);
  std::string text = fmt::format("{} #{}", to_string(call.signature.collective), call.sequence);
  if (!call.name.empty()) text += fmt::format(" ({})", call.name);
  return text;
}

ArrivalTable::ArrivalTable(const RankView& view, Arena& arena)
    : view_(view), arena_(arena), own_(arena.block(arena.self())), remote_(view.world.members.size()) {}

void ArrivalTable::set_waiting_for_gpu(bool waits) noexcept {
  own_.waiting_for_gpu.value.store(waits ? arrived() : 0, std::memory_order_relaxed);
}

void ArrivalTable::publish_heartbeat(std::chrono::nanoseconds now) noexcept {
  own_.heartbeat.value.store(static_cast<std::uint64_t>(now.count()), std::memory_order_relaxed);
}

void ArrivalTable::add_records(std::uint64_t sequence, const std::vector<Arrived>& ranks) {
  for (const auto& [rank, signature] : ranks) {
    const auto at = static_cast<std::size_t>(rank);
    if (at < remote_.size() && sequence >= remote_[at].sequence) remote_[at] = {sequence, signature};
  }
}

std::optional<Signature> ArrivalTable::record_of_local(int local, std::uint64_t sequence) const {
  const ArrivalRecord& record = arena_.block(local).records[sequence % kRecords];
  if (record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  SignatureWords words;
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = record.words[w].load(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return unpack(words);
}

std::optional<Signature> ArrivalTable::signature_of(Rank rank, std::uint64_t sequence) const {
  if (view_.host_of(rank) == view_.grid.host) return record_of_local(view_.local_of(rank), sequence);
  const Record& record = remote_[static_cast<std::size_t>(rank)];
  return record.sequence == sequence ? std::optional(record.signature) : std::nullopt;
}

bool ArrivalTable::has_arrived(Rank rank, std::uint64_t sequence) const {
  if (view_.host_of(rank) != view_.grid.host) return remote_[static_cast<std::size_t>(rank)].sequence >= sequence;
  const int local = view_.local_of(rank);
  return record_of_local(local, sequence).has_value() ||
         arena_.block(local).arrived.value.load(std::memory_order_acquire) > sequence;
}

std::vector<Arrived> ArrivalTable::records_of_host(std::uint64_t sequence) const {
  std::vector<Arrived> ranks;
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local)
    if (const auto signature = record_of_local(local, sequence))
      ranks.push_back({here[static_cast<std::size_t>(local)], *signature});
  return ranks;
}

std::vector<Arrived> ArrivalTable::records(const CallInfo& call) const {
  std::vector<Arrived> ranks;
  for (const Rank rank : view_.world.members) {
    const auto signature = rank == view_.world.self ? std::optional(call.signature) : signature_of(rank, call.sequence);
    if (signature) ranks.push_back({rank, *signature});
  }
  return ranks;
}

std::vector<Rank> ArrivalTable::missing(std::uint64_t sequence) const {
  std::vector<Rank> missing;
  for (const Rank rank : view_.world.members)
    if (rank != view_.world.self && !has_arrived(rank, sequence)) missing.push_back(rank);
  return missing;
}

Missing ArrivalTable::first_missing(std::uint64_t sequence) const {
  Missing missing;
  for (const Rank rank : view_.world.members) {
    if (rank == view_.world.self || has_arrived(rank, sequence)) continue;
    if (missing.ranks++ == 0) missing.first = rank;
  }
  return missing;
}

std::vector<Rank> ArrivalTable::silent_ranks(std::uint64_t sequence) const {
  std::vector<Rank> silent;
  const auto now = coarse_now();
  const Peers here = view_.grid.here();
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    const std::chrono::nanoseconds heartbeat(block.heartbeat.value.load(std::memory_order_relaxed));
    if (local != arena_.self() && now - heartbeat > kSilent &&
        block.completed.value.load(std::memory_order_acquire) < sequence)
      silent.push_back(here[static_cast<std::size_t>(local)]);
  }
  return silent;
}

std::vector<Rank> ArrivalTable::ranks_waiting_for_gpu(std::uint64_t sequence) const {
  std::vector<Rank> ranks;
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    if (block.waiting_for_gpu.value.load(std::memory_order_relaxed) == sequence &&
        block.completed.value.load(std::memory_order_acquire) < sequence)
      ranks.push_back(view_.grid.here()[static_cast<std::size_t>(local)]);
  }
  return ranks;
}

Rank ArrivalTable::awaited_rank(std::uint64_t sequence) const {
  // A missing rank with a recent heartbeat waits in an earlier call, probably for a rank whose heartbeat is old. The
  // rank with the oldest heartbeat is the first choice.
  const std::vector<Rank> absent = missing(sequence), silent = silent_ranks(sequence);
  const auto longest_silent = std::ranges::min_element(silent, {}, [this](Rank rank) {
    return arena_.block(view_.local_of(rank)).heartbeat.value.load(std::memory_order_relaxed);
  });
  if (longest_silent != silent.end()) return *longest_silent;
  if (!absent.empty()) return absent.front();
  const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(sequence);
  return waiting_for_gpu.empty() ? kNoRank : waiting_for_gpu.front();
}

std::string ArrivalTable::missing_text(std::uint64_t sequence) const {
  const auto have = [](const std::vector<Rank>& ranks) {
    return fmt::format("{} {}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have");
  };
  const std::vector<Rank> absent = missing(sequence), silent = silent_ranks(sequence);
  if (absent.empty()) {
    const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(sequence);
    const std::string but =
        !silent.empty()               ? ", but " + have(silent) + " stopped there"
        : waiting_for_gpu.size() == 1 ? ", but the GPU of " + have(waiting_for_gpu) + " not done its part"
        : !waiting_for_gpu.empty()    ? ", but the GPUs of " + have(waiting_for_gpu) + " not done their part"
                                      : "";
    return "all ranks have arrived" + but;
  }
  std::string text = have(absent) + " not arrived";
  if (!silent.empty() && silent != absent) text += "; no sign of life from " + ranks_text(silent);
  return text;
}

std::string ArrivalTable::progress_text() const {
  std::vector<std::pair<std::string, std::vector<Rank>>> places;
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    const std::uint64_t at = block.arrived.value.load(std::memory_order_acquire);
    const bool inside = block.completed.value.load(std::memory_order_acquire) < at;
    const auto signature = record_of_local(local, at);
    const std::string place = at == 0 ? "in no call yet"
                                      : fmt::format("{} {} #{}", inside ? "in" : "after",
                                                    signature ? to_string(signature->collective) : "call", at);
    auto found = std::ranges::find(places, place, &std::pair<std::string, std::vector<Rank>>::first);
    if (found == places.end()) found = places.insert(found, {place, {}});
    found->second.push_back(view_.grid.here()[static_cast<std::size_t>(local)]);
  }
  std::vector<std::string> parts;
  for (const auto& [place, ranks] : places) parts.push_back(fmt::format("{} {}", ranks_text(ranks), place));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace collectives
