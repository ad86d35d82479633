// TcpPeerWatch: detects that another rank has ended while the ranks connect over TCP.
//
// Until ranks are connected, they exchange bytes through a bootstrap. Some bootstraps do not detect that a rank has
// ended. Two signs on the network show this:
//
//   closed     the rank has closed a connection after it had proven that it belongs to the job
//   refused    each address of the rank has failed, and at least one of them refuses connections
//
// Each rank listens from before it publishes its addresses until all ranks have connected. Refused connections thus
// mean that the process no longer listens. A rank that has failed, but still runs, closes its connections, too. In that
// case, the bootstrap may report the reason of the failure. A sign therefore counts only after half a second, if the
// bootstrap has reported nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

class TcpPeerWatch {
 public:
  using Clock = std::chrono::steady_clock;
  /// Time from the first sign of a rank until the rank counts as ended.
  static constexpr std::chrono::milliseconds kPatience{500};

  explicit TcpPeerWatch(std::size_t ranks) : closed_(ranks), refused_(ranks) {}

  /// Stores that the rank has closed a connection, which is the sign `closed`.
  void note_closed(Rank rank, Clock::time_point now) {
    if (!has_closed(rank)) closed_[index(rank)] = now;
  }
  bool has_closed(Rank rank) const { return closed_[index(rank)].has_value(); }
  /// Stores whether connections to the rank are refused, which is the sign `refused`.
  void note_refused(Rank rank, bool is_refused, Clock::time_point now) {
    std::optional<Clock::time_point>& since = refused_[index(rank)];
    if (!is_refused)
      since.reset();
    else if (!since)
      since = now;
  }

  struct Lost {
    Rank rank;
    bool is_refused;  ///< true: sign `refused`; false: sign `closed`
  };
  /// Returns the rank with the earliest sign, if that sign is older than kPatience.
  std::optional<Lost> lost(Clock::time_point now) const {
    std::optional<Lost> earliest;
    Clock::time_point at = now - kPatience;
    for (const auto* const signs : {&refused_, &closed_})
      for (std::size_t rank = 0; rank < signs->size(); ++rank)
        if (const auto& since = (*signs)[rank]; since && *since <= at) {
          at = *since;
          earliest = Lost{static_cast<Rank>(rank), signs == &refused_};
        }
    return earliest;
  }

 private:
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  std::vector<std::optional<Clock::time_point>> closed_, refused_;  // Time of the first sign of each rank.
};

}  // namespace collectives
