// A network between hosts, as one rank sees it before anyone is connected. It says where this rank can be reached; the
// ranks exchange that by whatever bootstrap they have; then it connects them. So a network needs no MPI, and a
// bootstrap needs no network of its own.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Everyone who is to be connected.
struct PeerAddresses {
  Rank self = 0;
  std::vector<std::string> addresses;  ///< by rank: what each one's Network says
  /// By rank, equal on one host; ranks of one host are never connected to each other.
  std::vector<int> hosts;
  /// The same on all ranks and on no others: told to whoever is met, so that strangers and other jobs are refused.
  std::string token;
  std::size_t frame_bytes = 0;
  Deadline deadline = Deadline::never();

  int size() const { return static_cast<int>(addresses.size()); }
  bool is_remote(Rank rank) const {
    return hosts[static_cast<std::size_t>(rank)] != hosts[static_cast<std::size_t>(self)];
  }
};

class Network {
 public:
  virtual ~Network() = default;
  /// "tcp", "ucx": also the name of its wires.
  virtual std::string_view name() const noexcept = 0;
  /// What the others need to reach this rank: any bytes, a few hundred.
  virtual std::string address() const = 0;
  /// Connects this rank with all ranks of other hosts, while they do the same; called once. Throws Error: timeout or
  /// bootstrap naming the ranks that could not be reached, and how it was tried.
  virtual std::unique_ptr<Wire> connect(const PeerAddresses&) = 0;
};

}  // namespace collectives
