// Implementation of ArrivalTable. When a rank enters a call, it publishes an arrival record: the number and the
// arguments of the call. The arrival table holds the newest records of all ranks. This file also finds the ranks for
// which a call waits, and names them in error texts.
#include "monitoring/arrival_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/coarse_clock.hpp"
#include "base/text.hpp"
#include "monitoring/message_wait.hpp"

namespace collectives {
namespace {

using namespace std::chrono_literals;

// Age of a heartbeat from which a rank is silent. A heartbeat is the time at which a waiting rank last checked its
// peers. A silent rank is thus not waiting in a call of the library.
constexpr auto kSilent = 200ms;
// Maximum number of point-to-point waits that a text names. A text is cut to 1023 bytes.
constexpr int kMostWaits = 4;

/// Returns the running hash of the calls of local rank `local` up to call `sequence`. Returns nothing if the record of
/// a later call has overwritten the record of that call.
std::optional<std::uint64_t> hash_of_local(const Arena& arena, int local, std::uint64_t sequence) noexcept {
  const ArrivalRecord& record = arena.block(local).records[sequence % kRecords];
  if (record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  const std::uint64_t hash = record.after.load(std::memory_order_acquire);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return hash;
}

}  // namespace

std::string call_text(const CallInfo& call) {
  if (!call.operation.empty()) return std::string(call.operation);
  return label_of(call.signature, call.sequence, call.name);
}

ArrivalTable::ArrivalTable(const RankView& view, Arena& arena)
    : view_(view), arena_(arena), own_(arena.block(arena.self())), remote_(view.world.members.size()) {}

void ArrivalTable::set_waiting_for_gpu(bool waits) noexcept {
  own_.waiting_for_gpu.value.store(waits ? arrived() : 0, std::memory_order_relaxed);
}

void ArrivalTable::publish_heartbeat(std::chrono::nanoseconds now) noexcept {
  own_.heartbeat.value.store(static_cast<std::uint64_t>(now.count()), std::memory_order_relaxed);
}

// ---- records ----

void ArrivalTable::publish_details(std::uint64_t sequence, std::string_view name, std::string_view others) noexcept {
  char bytes[kDetailBytes];
  std::size_t used = 0;
  const auto add = [&](std::string_view part) {
    part = part.substr(0, sizeof bytes - used);
    used += part.copy(bytes + used, part.size());
  };
  name = name.substr(0, kNameBytes);
  if (!name.empty()) {
    const char head[] = {static_cast<char>(Detail::name), static_cast<char>(name.size() & 0xff),
                         static_cast<char>(name.size() >> 8)};
    add({head, sizeof head});
    add(name);
  }
  add(others);
  DetailRecord& record = arena_.detail(arena_.self(), sequence);
  record.sequence.store(0, std::memory_order_relaxed);
  record.bytes.store(used, std::memory_order_release);
  for (std::size_t at = 0; at < used; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, used - at));
    record.words[at / sizeof word].store(word, std::memory_order_release);
  }
  record.sequence.store(sequence, std::memory_order_release);
}

CallDetails ArrivalTable::details_of_local(int local, std::uint64_t sequence) const {
  const DetailRecord& record = arena_.detail(local, sequence);
  if (record.sequence.load(std::memory_order_acquire) != sequence) return {};
  const std::size_t used = std::min<std::size_t>(record.bytes.load(std::memory_order_acquire), kDetailBytes);
  std::string bytes(kDetailBytes, '\0');
  for (std::size_t at = 0; at < used; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = record.words[at / sizeof word].load(std::memory_order_acquire);
    std::memcpy(bytes.data() + at, &word, sizeof word);
  }
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return {};
  return decode_details(std::string_view(bytes).substr(0, used));
}

std::optional<CallRecord> ArrivalTable::record_of_local(int local, std::uint64_t sequence) const {
  const ArrivalRecord& record = arena_.block(local).records[sequence % kRecords];
  if (sequence == 0 || record.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  const RunningHash hash{record.before.load(std::memory_order_acquire), record.after.load(std::memory_order_acquire)};
  SignatureWords words;
  for (std::size_t w = 0; w < words.size(); ++w) words[w] = record.words[w].load(std::memory_order_acquire);
  CallDetails details = details_of_local(local, sequence);
  if (record.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  return CallRecord{sequence, hash, unpack(words), std::move(details)};
}

const CallRecord* ArrivalTable::record_of_remote(Rank rank, std::uint64_t sequence) const noexcept {
  const RemoteRank& remote = remote_[static_cast<std::size_t>(rank)];
  if (sequence == 0 || remote.records.empty()) return nullptr;
  const CallRecord& record = remote.records[sequence % kRecords];
  return record.sequence == sequence ? &record : nullptr;
}

void ArrivalTable::add_records(std::vector<Arrived> records) {
  for (auto& [rank, call] : records) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= remote_.size() || is_here(rank) || call.sequence == 0) continue;
    RemoteRank& remote = remote_[static_cast<std::size_t>(rank)];
    if (remote.records.empty()) remote.records.resize(kRecords);
    CallRecord& place = remote.records[call.sequence % kRecords];
    if (call.sequence < place.sequence) continue;
    if (const auto own = own_hash(call.sequence); own && *own != call.hash.after) remote_difference_ = true;
    remote.newest = std::max(remote.newest, call.sequence);
    place = std::move(call);
  }
}

std::uint64_t ArrivalTable::newest_of(Rank rank) const noexcept {
  if (is_here(rank)) return arena_.block(view_.local_of(rank)).arrived.value.load(std::memory_order_acquire);
  return remote_[static_cast<std::size_t>(rank)].newest;
}

std::optional<CallRecord> ArrivalTable::record_of(Rank rank, std::uint64_t sequence) const {
  if (is_here(rank)) return record_of_local(view_.local_of(rank), sequence);
  const CallRecord* const record = record_of_remote(rank, sequence);
  return record != nullptr ? std::optional(*record) : std::nullopt;
}

void append_records(const ArrivalTable& table, Rank rank, std::size_t most, std::vector<Arrived>& to) {
  const std::uint64_t newest = table.newest_of(rank);
  // The loop counts the remaining records, not the call numbers. The call number `newest` comes from a peer. If it were
  // the largest possible number, a loop over call numbers would not end.
  for (std::uint64_t left = std::min<std::uint64_t>(newest, most); left > 0; --left)
    if (auto record = table.record_of(rank, newest - left + 1)) to.push_back({rank, *std::move(record)});
}

std::vector<Arrived> ArrivalTable::records_of_host(std::size_t most) const {
  std::vector<Arrived> records;
  for (const Rank rank : view_.grid.here()) append_records(*this, rank, most, records);
  return records;
}

std::vector<Arrived> ArrivalTable::own_records(std::size_t most) const {
  std::vector<Arrived> records;
  append_records(*this, view_.world.self, most, records);
  return records;
}

// ---- differences ----

bool ArrivalTable::has_difference() const noexcept {
  if (remote_difference_) return true;
  const std::uint64_t newest = arrived();
  return std::ranges::any_of(view_.world.members, [&](Rank rank) {
    if (rank == view_.world.self) return false;
    const std::uint64_t common = std::min(newest, newest_of(rank));
    if (common == 0) return false;
    const auto own = own_hash(common);
    if (is_here(rank)) {
      const auto other = hash_of_local(arena_, view_.local_of(rank), common);
      return own && other && *own != *other;
    }
    const CallRecord* const other = record_of_remote(rank, common);
    return own && other != nullptr && *own != other->hash.after;
  });
}

// ---- texts ----

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

Rank ArrivalTable::awaited_rank(std::uint64_t sequence, const std::vector<Rank>& elsewhere) const {
  // A missing rank has not entered this call. If its heartbeat is recent, it waits in an earlier call, probably for a
  // silent rank. The text first names the rank with the oldest heartbeat.
  const std::vector<Rank> absent = missing(sequence), silent = silent_ranks(sequence);
  const auto longest_silent = std::ranges::min_element(silent, {}, [this](Rank rank) {
    return arena_.block(view_.local_of(rank)).heartbeat.value.load(std::memory_order_relaxed);
  });
  if (longest_silent != silent.end()) return *longest_silent;
  const auto silent_absent = std::ranges::find_first_of(absent, elsewhere);
  if (!absent.empty()) return silent_absent != absent.end() ? *silent_absent : absent.front();
  const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(sequence);
  for (const std::vector<Rank>* const ranks : {&waiting_for_gpu, &elsewhere})
    if (!ranks->empty()) return ranks->front();
  return kNoRank;
}

std::string ArrivalTable::missing_text(std::uint64_t sequence, const std::vector<Rank>& elsewhere) const {
  const auto have = [](const std::vector<Rank>& ranks) {
    return fmt::format("{} {}", ranks_text(ranks), ranks.size() == 1 ? "has" : "have");
  };
  const auto no_sign = [](const std::vector<Rank>& ranks) {
    return ranks.empty() ? "" : "; no sign of life from " + ranks_text(ranks);
  };
  const std::vector<Rank> absent = missing(sequence);
  std::vector<Rank> silent = silent_ranks(sequence);
  if (absent.empty()) {
    const std::vector<Rank> waiting_for_gpu = ranks_waiting_for_gpu(sequence);
    const std::string but =
        !silent.empty()               ? ", but " + have(silent) + " stopped there"
        : waiting_for_gpu.size() == 1 ? ", but the GPU of " + have(waiting_for_gpu) + " not done its part"
        : !waiting_for_gpu.empty()    ? ", but the GPUs of " + have(waiting_for_gpu) + " not done their part"
                                      : "";
    return "all ranks have arrived" + but + no_sign(elsewhere);
  }
  silent.insert(silent.end(), elsewhere.begin(), elsewhere.end());
  std::ranges::sort(silent);
  std::string text = have(absent) + " not arrived" + (silent != absent ? no_sign(silent) : "");
  int waits = 0;
  for (const Rank rank : absent) {
    if (!is_here(rank)) continue;
    const std::uint64_t word = arena_.block(view_.local_of(rank)).message_wait.value.load(std::memory_order_acquire);
    const MessageWait wait = MessageWait::of(word);
    if (wait.kind != MessageWait::Kind::none && ++waits <= kMostWaits) text += "; " + wait_text(rank, wait);
  }
  return text;
}

std::string ArrivalTable::progress_text() const {
  std::vector<std::pair<std::string, std::vector<Rank>>> places;
  for (int local = 0; local < arena_.ranks(); ++local) {
    const RankBlock& block = arena_.block(local);
    const std::uint64_t at = block.arrived.value.load(std::memory_order_acquire);
    const bool inside = block.completed.value.load(std::memory_order_acquire) < at;
    const auto record = record_of_local(local, at);
    const std::string call = record ? label_of(record->signature, at, {}) : fmt::format("call #{}", at);
    const std::string place = at == 0 ? "in no call yet" : fmt::format("{} {}", inside ? "in" : "after", call);
    auto found = std::ranges::find(places, place, &std::pair<std::string, std::vector<Rank>>::first);
    if (found == places.end()) found = places.insert(found, {place, {}});
    found->second.push_back(view_.grid.here()[static_cast<std::size_t>(local)]);
  }
  std::vector<std::string> parts;
  for (const auto& [place, ranks] : places) parts.push_back(fmt::format("{} {}", ranks_text(ranks), place));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace collectives
