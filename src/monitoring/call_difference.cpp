// Implementation of first_difference(), which searches for the first call in which ranks differ. An arrival record
// holds the number and the arguments of one call of a rank. A rank keeps only the records of its newest calls. A record
// also holds the running hash, which covers all calls of the rank so far. The hash therefore also shows a difference in
// earlier calls, whose records have been overwritten.
#include "monitoring/call_difference.hpp"

#include <algorithm>
#include <cstdint>

namespace collectives {
namespace {

/// Returns a difference between two ranks that have no records of the same call. In this case, the oldest record of one
/// rank belongs to a later call than the newest record of the other rank. Each record holds the running hash before its
/// call. This hash shows whether earlier calls differ.
std::optional<CallDifference> earlier_difference(const std::vector<Arrived>& all) {
  for (const Arrived& newest : all) {
    const std::uint64_t next = newest.call.sequence + 1;
    CallDifference found{.records = {}, .earlier = true, .complete = true};
    bool differs = false;
    for (const Arrived& one : all) {
      if (one.call.sequence != next) continue;
      found.records.push_back(one);
      differs = differs || (one.rank != newest.rank && one.call.hash.before != newest.call.hash.after);
    }
    if (!differs || std::ranges::count(found.records, newest.rank, &Arrived::rank) > 0) continue;
    CallRecord behind = found.records.front().call;
    behind.hash.before = newest.call.hash.after;
    found.records.push_back({newest.rank, behind});
    return found;
  }
  return std::nullopt;
}

/// Returns a difference between this rank and a rank that is kRecords or more calls behind. This rank has overwritten
/// its records of those calls, but still has the running hashes.
std::optional<CallDifference> overwritten_difference(const ArrivalTable& table, const std::vector<Arrived>& all) {
  for (const Arrived& one : all) {
    const std::uint64_t sequence = one.call.sequence;
    const auto after = table.own_hash(sequence), before = table.own_hash(sequence - 1);
    if (!after || *after == one.call.hash.after || table.record_of(table.world().self, sequence)) continue;
    CallDifference found{.records = {one}, .earlier = before != one.call.hash.before, .complete = true};
    if (!found.earlier) {
      found.unrecorded = table.world().self;
    } else {
      found.records.push_back({table.world().self, one.call});
      found.records.back().call.hash = {before.value_or(0), *after};
    }
    return found;
  }
  return std::nullopt;
}

}  // namespace

std::optional<CallDifference> first_difference(const ArrivalTable& table) {
  std::vector<Arrived> all;
  for (const Rank rank : table.world().members) append_records(table, rank, kRecords, all);
  std::ranges::stable_sort(all, {}, [](const Arrived& one) { return one.call.sequence; });
  for (auto first = all.begin(); first != all.end();) {
    const std::uint64_t sequence = first->call.sequence;
    const auto end = std::find_if(first, all.end(), [&](const Arrived& one) { return one.call.sequence != sequence; });
    const auto differs = [&](const Arrived& one) { return !agree(one.call, first->call); };
    if (std::any_of(first, end, differs)) {
      CallDifference found{.records = {first, end}};
      found.earlier =
          std::any_of(first, end, [&](const Arrived& one) { return one.call.hash.before != first->call.hash.before; });
      // A rank may enter the call after this function has read its records. Only the records that were read count.
      found.complete = std::ranges::all_of(table.world().members, [&](Rank rank) {
        return std::ranges::count(found.records, rank, &Arrived::rank) > 0 ||
               std::ranges::count(all, rank, &Arrived::rank) == kRecords;
      });
      found.complete = found.complete && (!found.earlier || std::ranges::all_of(found.records, [&](const Arrived& one) {
                         return std::ranges::count(all, one.rank, &Arrived::rank) == kRecords;
                       }));
      return found;
    }
    first = end;
  }
  auto found = overwritten_difference(table, all);
  return found ? found : earlier_difference(all);
}

}  // namespace collectives
