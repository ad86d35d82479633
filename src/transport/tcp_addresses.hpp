// Addresses of the TCP network: the addresses of this host's interfaces, and the text by which a rank publishes its
// addresses to other ranks.
//
// The text is a JSON object with the port, the addresses, and the network namespace of the process. A rank that
// receives the text checks all fields, because the text comes from another process.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace collectives {

/// Network interface of this host, with one of its addresses. The interface is up and is no loopback. An interface with
/// several addresses has one NetworkInterface per address.
struct NetworkInterface {
  std::string name, address;
  std::vector<std::uint8_t> bytes;  ///< the address in binary
  int prefix = 0;                   ///< length in bits of the prefix that all addresses of the network have in common
};

/// Address and port of a rank.
struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string text;  ///< the address with the port, such as "10.77.0.1:4000"
};

std::vector<NetworkInterface> interfaces_up();
/// Returns whether the user permits the interface: `interfaces` is empty, or contains its name or the beginning of its
/// address.
bool is_allowed(const NetworkInterface&, const std::vector<std::string>& interfaces);

/// Returns the addresses of this host's interfaces as text, such as "10.77.0.1" or "fd00::1". Omits loopback,
/// interfaces that are down, and interfaces that the user does not permit by `interfaces`.
std::vector<std::string> own_addresses(const std::vector<std::string>& interfaces);

/// Returns the text by which this rank publishes its port and its addresses.
std::string published_address(int port, const std::vector<std::string>& interfaces);

/// Returns the addresses at which the rank that has published `text` may be reached. If both processes share a network
/// namespace, loopback comes first. Then come the addresses in networks of the interfaces `mine`, then the rest. Throws
/// Error{bootstrap} if the text is malformed.
std::vector<TcpAddress> read_published_address(std::string_view text, const std::vector<NetworkInterface>& mine);

}  // namespace collectives
