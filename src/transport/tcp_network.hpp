// How ranks of different hosts get their TCP connections. Every rank listens, and says at which addresses; of two ranks
// the higher one connects to the lower one. A host has addresses that lead nowhere (bridges of containers, links that
// are down, networks behind a firewall), so the next address is tried soon after the last, and whichever answers first
// is taken. An answer is believed only from who knows the token, since another host may have the same address.
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
  /// Names of interfaces ("eth0"), or beginnings of addresses ("10.77."): no others are used; empty: all of them.
  std::vector<std::string> interfaces{};
  /// Of every connection: as the kernel names it, "system" for what the machine uses. BBR measures its rate while
  /// processes wait for a core, and stays slow.
  std::string congestion_control = "cubic";
  /// Messages of up to DatagramLink::kLongest bytes.
  DatagramSettings datagrams{};
};

class TcpNetwork final : public Network {
 public:
  /// Listens. Throws Error{bootstrap}.
  explicit TcpNetwork(TcpSettings);

  std::string_view name() const noexcept override { return "tcp"; }
  std::string address() const override;
  std::unique_ptr<Wire> connect(const PeerAddresses&) override;

 private:
  TcpSettings settings_;
  tcp::Socket listener_;
  int port_ = 0;
};

/// What of the settings matches nothing on this host, and what there is instead; empty when all is well.
std::string what_matches_nothing(const TcpSettings&);

/// The addresses of this host's interfaces that are up, loopback left out, as text: "10.77.0.1", "fd00::1". Those that
/// `interfaces` allows.
std::vector<std::string> own_addresses(const std::vector<std::string>& interfaces);

}  // namespace collectives
