// Trials in which a rank is killed at a random time. The ranks of a trial are processes. Each survivor must soon get an
// error that names a killed rank, and must then end. Nothing of the trial may be left on the machine.
//
// A trial follows from a seed and an index alone, so one trial can be repeated. kill_trial.cpp starts and judges the
// ranks. kill_trial_rank.cpp is the program of one rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/error.hpp"
#include "support/sleeper.hpp"

namespace collectives::testing {

/// Part of a program in which the rank is killed.
enum class KillPhase { start, calls, groups, top_k, split, rebuilding, destruction };
inline constexpr KillPhase kKillPhases[] = {KillPhase::start,      KillPhase::calls, KillPhase::groups,
                                            KillPhase::top_k,      KillPhase::split, KillPhase::rebuilding,
                                            KillPhase::destruction};
std::string_view to_string(KillPhase) noexcept;

/// Connection of the ranks. `mixed`: two hosts, at least one with several ranks if there are more than two ranks.
enum class KillWire { shared_memory, tcp, tcp_without_datagrams, ucx, mixed };
std::string_view to_string(KillWire) noexcept;

/// End of a survivor after its error.
enum class Leaving { at_once, without_destructors, late };

struct KillTrial {
  std::uint64_t seed = 0, index = 0;
  KillPhase phase = KillPhase::calls;
  KillWire wire = KillWire::shared_memory;
  std::vector<int> hosts;        ///< hosts[r]: host of rank r
  std::vector<Rank> victims;     ///< the first one is killed first
  int operation = -1;            ///< operation before which the victim kills itself; -1: the driver kills it
  int after_us = 0;              ///< microseconds after the beginning of the phase at which the driver kills
  int between_us = 0;            ///< microseconds between two kills
  bool measures = false;         ///< whether the ranks measure their tuning at the start
  std::vector<Leaving> leaving;  ///< leaving[r]: of rank r
  int ranks() const { return static_cast<int>(hosts.size()); }
  std::string text() const;
};
/// Returns trial number `index` of `seed`, with one of `wires`.
KillTrial draw_trial(std::uint64_t seed, std::uint64_t index, const std::vector<KillWire>& wires);

/// State of a rank, in memory that the driver shares with it. Times are those of Sleeper::now().
struct RankState {
  enum Stage { starting, joined, constructed };
  std::atomic<int> stage = starting;
  std::atomic<std::int64_t> operations = 0;
  std::atomic<std::int64_t> entered = 0;  ///< begin of the last call
  std::atomic<std::int64_t> killed = 0;   ///< time at which a victim killed itself
  std::atomic<std::int64_t> failed = 0;   ///< time at which the rank got its error
  std::atomic<int> code = 0, peer = kNoRank;
  char operation[80] = {}, text[600] = {};
};

/// Runs rank `rank` of a trial. Never returns.
[[noreturn]] void run_rank(const KillTrial& trial, Rank rank, RankState& state);

/// Timeout of the rendezvous. Ranks cannot know of a rank that was killed before it came.
inline constexpr int kRendezvousSeconds = 4;

/// Time until the error of a survivor.
struct Survivor {
  double seconds;          ///< from the kill, or from the survivor's later call, to the error
  double corrected;        ///< the part of it in which the machine let a sleeper run
  bool before_rendezvous;  ///< whether a victim was killed before it had joined
};
struct KillVerdict {
  std::vector<std::string> faults;
  std::vector<Survivor> survivors;
  std::string output;  ///< stdout and stderr of the ranks
};
/// Runs a trial and judges it.
KillVerdict run_trial(const KillTrial& trial, const Sleeper& sleeper);

}  // namespace collectives::testing
