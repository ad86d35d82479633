// Network over TCP: connects ranks of different hosts.
//
// Every rank listens at a port and publishes its addresses. In each pair of ranks on different hosts, the higher rank
// connects to the lower one. Some addresses of a host cannot be reached: container bridges, links that are down,
// networks behind a firewall. A rank therefore tries the next address of a peer at most 250 ms after the previous one,
// and uses the first address that answers. The address may also belong to a different host, so a process of another job
// may answer. Each end therefore proves to the other end that it knows the secret of the job, without sending the
// secret (tcp_greeting.hpp).
//
// Other processes may also connect to a rank's port. A rank keeps only a limited number of connections that have not
// sent a proof. If one more arrives, the rank closes the oldest one.
//
// Price: each pair of ranks on different hosts has two connections. Their number grows as the square of the rank count.
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

/// Sets the congestion control. Returns false and changes nothing if the kernel lacks it or reserves it for root.
bool choose_congestion_control(const tcp::Socket& socket, const std::string& name);

/// Returns a text that names the settings that match nothing on this host, and the possible values. The text is empty
/// if all settings match.
std::string what_matches_nothing(const TcpSettings&);

}  // namespace collectives
