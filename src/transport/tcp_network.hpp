// Network over TCP: connects ranks of different hosts.
//
// Every rank listens at a port and publishes its addresses. In each pair of ranks on different hosts, the higher rank
// connects to the lower one. Some addresses of a host cannot be reached: container bridges, links that are down,
// networks behind a firewall. A rank therefore tries the next address of a peer at most 250 ms after the previous one,
// and uses the first address that answers. The rank accepts an answer only from a process that knows the token, a
// secret of the job. Reason: the process that answers may be on a different host that has the same address.
//
// Price: each pair of ranks on different hosts has two connections. Their number grows as the square of the number of
// ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "transport/datagrams.hpp"
#include "transport/network.hpp"

namespace collectives {

struct TcpSettings {
  /// Network interfaces to use, by name ("eth0") or by the beginning of an address ("10.77."). Empty: all interfaces.
  std::vector<std::string> interfaces{};
  /// Congestion control of all connections, by the kernel's name; "system": the machine's default. The default is not
  /// BBR. BBR also measures its rate while a process waits for a core. BBR then sends too slowly for a long time.
  std::string congestion_control = "cubic";
  /// Settings of the UDP datagrams, which carry messages of at most DatagramLink::kLongest bytes.
  DatagramSettings datagrams{};
};

class TcpNetwork final : public Network {
 public:
  /// Opens the listening socket. Throws Error{bootstrap}.
  explicit TcpNetwork(TcpSettings);

  std::string_view name() const noexcept override { return "tcp"; }
  std::string address() const override;
  std::unique_ptr<Wire> connect(const PeerAddresses&) override;

 private:
  TcpSettings settings_;
  tcp::Socket listener_;
  int port_ = 0;
};

/// Returns a text that names the settings that match nothing on this host, and the possible values. The text is empty
/// if all settings match.
std::string what_matches_nothing(const TcpSettings&);

/// Returns the addresses of this host's interfaces as text, such as "10.77.0.1" or "fd00::1". Omits loopback,
/// interfaces that are down and interfaces that `interfaces` does not allow.
std::vector<std::string> own_addresses(const std::vector<std::string>& interfaces);

}  // namespace collectives
