// Network: connects the ranks of different hosts, and makes the wire of one rank. A wire is the object by which a rank
// exchanges messages with the ranks of other hosts.
//
// 1. address() returns the addresses at which this rank can be reached.
// 2. The ranks exchange these addresses through their bootstrap, the means by which they exchange bytes before they are
//    connected.
// 3. connect() takes the addresses of all ranks, and connects this rank with all ranks of other hosts.
//
// A network therefore works with any bootstrap, not only with that of MPI. Price: during construction, ranks use the
// bootstrap twice. First, they exchange their addresses. Later, each rank reports whether it has connected. The class
// Wires (wires.hpp) chooses the network.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/reported_wait.hpp"
#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Function that a network calls repeatedly while it waits. It writes a report about a long wait, and calls `awaited`
/// for the text of the report. It returns whether the deadline has passed. It throws an error if a peer has ended.
using WaitTurn = std::function<bool(const ReportedWait::Describe& awaited)>;

/// Addresses and hosts of all ranks of a communicator.
struct PeerAddresses {
  Rank self = 0;
  std::vector<std::string> addresses;  ///< result of Network::address() of each rank
  /// Host number of each rank. The network does not connect ranks with the same number.
  std::vector<int> hosts;
  /// Text that all ranks of this job have and no other process has. A process without this text is refused.
  std::string token;
  std::size_t frame_bytes = 0;
  Deadline deadline = Deadline::never();
  WaitTurn turn = {};  ///< May be empty: waits then have the deadline only.

  /// Performs one turn of a wait. Returns whether the deadline has passed. Throws the errors of `turn`.
  bool is_over(const ReportedWait::Describe& awaited) const { return turn ? turn(awaited) : deadline.passed(); }
  int size() const { return static_cast<int>(addresses.size()); }
  bool is_remote(Rank rank) const {
    return hosts[static_cast<std::size_t>(rank)] != hosts[static_cast<std::size_t>(self)];
  }
};

class Network {
 public:
  virtual ~Network() = default;
  /// Returns the name of the network and of its wires, such as "tcp" or "ucx".
  virtual std::string_view name() const noexcept = 0;
  /// Returns the bytes that others need to reach this rank. The result is binary data of a few hundred bytes.
  virtual std::string address() const = 0;
  /// Connects this rank with all ranks of other hosts, which call connect() at the same time. Must be called only once.
  /// Throws Error{timeout}, Error{peer_lost}, Error{bootstrap} or the errors of PeerAddresses::turn. The error names
  /// the ranks that could not be reached and the attempts.
  virtual std::unique_ptr<Wire> connect(const PeerAddresses&) = 0;
};

}  // namespace collectives
