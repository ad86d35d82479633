// Properties of the operations that the benchmarks time, such as all_reduce or ping_pong. This file uses no function of
// the library, because programs that time other libraries use this file, too.
#include "collectives_bench/operation.hpp"

namespace collectives::bench {

std::string_view to_string(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::reduce_scatter_v: return "reduce_scatter_v";
    case Operation::all_gather: return "all_gather";
    case Operation::all_gather_v: return "all_gather_v";
    case Operation::broadcast: return "broadcast";
    case Operation::reduce: return "reduce";
    case Operation::all_to_all: return "all_to_all";
    case Operation::all_to_all_v: return "all_to_all_v";
    case Operation::gather: return "gather";
    case Operation::gather_v: return "gather_v";
    case Operation::scatter: return "scatter";
    case Operation::scatter_v: return "scatter_v";
    case Operation::scan: return "scan";
    case Operation::exclusive_scan: return "exclusive_scan";
    case Operation::sendrecv: return "sendrecv";
    case Operation::ping_pong: return "ping_pong";
    case Operation::barrier: return "barrier";
  }
  return "";
}

Collective collective_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce: return Collective::all_reduce;
    case Operation::reduce_scatter:
    case Operation::reduce_scatter_v: return Collective::reduce_scatter;
    case Operation::all_gather:
    case Operation::all_gather_v: return Collective::all_gather;
    case Operation::broadcast: return Collective::broadcast;
    case Operation::reduce: return Collective::reduce;
    case Operation::all_to_all:
    case Operation::all_to_all_v: return Collective::all_to_all;
    case Operation::gather:
    case Operation::gather_v: return Collective::gather;
    case Operation::scatter:
    case Operation::scatter_v: return Collective::scatter;
    case Operation::scan: return Collective::scan;
    case Operation::exclusive_scan: return Collective::exclusive_scan;
    default: return Collective::barrier;
  }
}

bool is_message(Operation operation) noexcept {
  return operation == Operation::sendrecv || operation == Operation::ping_pong;
}

bool has_counts(Operation operation) noexcept { return to_string(operation).ends_with("_v"); }

bool is_reduction(Operation operation) noexcept {
  const Collective collective = collective_of(operation);
  return collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
         collective == Collective::reduce || collective == Collective::scan || collective == Collective::exclusive_scan;
}

bool has_parts(Operation operation) noexcept {
  return gathers(operation) || scatters(operation) || collective_of(operation) == Collective::all_to_all;
}

bool has_root(Operation operation) noexcept {
  const Collective collective = collective_of(operation);
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

bool has_in_place(Operation operation) noexcept { return operation != Operation::barrier && !is_message(operation); }

bool is_repeatable_in_place(Operation operation) noexcept {
  return gathers(operation) || collective_of(operation) == Collective::broadcast ||
         collective_of(operation) == Collective::scatter;
}

bool is_equal_on_all_ranks(Operation operation) noexcept {
  const Collective collective = collective_of(operation);
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast;
}

bool gathers(Operation operation) noexcept {
  return collective_of(operation) == Collective::all_gather || collective_of(operation) == Collective::gather;
}
bool scatters(Operation operation) noexcept {
  return collective_of(operation) == Collective::reduce_scatter || collective_of(operation) == Collective::scatter;
}

Rank partner_of(Rank rank, int ranks) noexcept {
  const Rank partner = rank ^ 1;
  return partner < ranks ? partner : kNoRank;
}

int reduced_ranks(Operation operation, Rank rank, int ranks) noexcept {
  return operation == Operation::scan ? rank + 1 : operation == Operation::exclusive_scan ? rank : ranks;
}

std::vector<std::size_t> part_counts(Operation operation, std::size_t count, Rank rank, int ranks) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), count);
  if (!has_counts(operation)) return counts;
  // In an all-to-all, any two ranks exchange parts of equal length, so that the call also works in place.
  const Rank shift = collective_of(operation) == Collective::all_to_all ? rank : 0;
  for (Rank r = 0; r < ranks; ++r)
    counts[static_cast<std::size_t>(r)] = (r + shift) % 2 == 0 ? count + count / 4 : count - count / 4;
  return counts;
}

}  // namespace collectives::bench
