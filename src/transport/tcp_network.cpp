// Implementation of the network over TCP, which connects ranks of different hosts. This file checks the settings and
// opens the listening socket. It makes the transport from the connections of tcp_connecting.hpp.
#include "transport/tcp_network.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "base/error_text.hpp"
#include "collectives/error.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_addresses.hpp"
#include "transport/tcp_connecting.hpp"
#include "transport/wire_secret.hpp"

namespace collectives {

bool choose_congestion_control(const tcp::Socket& socket, const std::string& name) {
  return ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

std::string what_matches_nothing(const TcpSettings& settings) {
  std::string text;
  const std::vector<NetworkInterface> up = interfaces_up();
  for (const std::string& wanted : settings.interfaces) {
    if (std::ranges::any_of(up, [&](const NetworkInterface& one) { return is_allowed(one, {wanted}); })) continue;
    std::vector<std::string> known;
    for (const NetworkInterface& one : up) known.push_back(fmt::format("{} ({})", one.name, one.address));
    text += fmt::format("no interface is \"{}\"; up are: {}. ", wanted, fmt::join(known, ", "));
  }
  if (settings.congestion_control != "system") {
    const tcp::Socket any(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!choose_congestion_control(any, settings.congestion_control)) {
      // The user root may use every algorithm of the kernel. Other users may use only those that root permits.
      std::string known, allowed;
      std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_available_congestion_control"), known);
      std::getline(std::ifstream("/proc/sys/net/ipv4/tcp_allowed_congestion_control"), allowed);
      text += fmt::format(
          "congestion control \"{}\" cannot be used here; the kernel has: {}; net.ipv4.tcp_allowed_congestion_control "
          "allows every user: {}. ",
          settings.congestion_control, known, allowed);
    }
  }
  return text;
}

TcpNetwork::TcpNetwork(TcpSettings settings) : settings_(std::move(settings)) {
  const auto listen = [this](const sockaddr* address, socklen_t bytes) {
    tcp::Socket socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.fd() < 0) return errno;
    if (address->sa_family == AF_INET6) tcp::set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(socket.fd(), address, bytes) != 0 || ::listen(socket.fd(), SOMAXCONN) != 0) return errno;
    sockaddr_storage bound{};
    socklen_t size = sizeof bound;
    if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return errno;
    port_ = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(bound).sin_port);
    listener_ = std::move(socket);
    return 0;
  };
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  if (listen(reinterpret_cast<const sockaddr*>(&six), sizeof six) == 0) return;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (const int code = listen(reinterpret_cast<const sockaddr*>(&four), sizeof four); code != 0)
    throw Error(is_out_of_descriptors(code) ? Errc::system : Errc::bootstrap,
                "transport tcp: cannot listen: " + error_text(code));
}

std::string TcpNetwork::address() const { return published_address(port_, settings_.interfaces); }

std::unique_ptr<Wire> TcpNetwork::connect(const PeerAddresses& peers) {
  // Each peer needs two connections and a UDP socket.
  make_space_for_descriptors(3 * static_cast<std::size_t>(peers.size()));
  const WireSecret secret(peers.token);
  auto wire = std::make_unique<TcpTransport>(make_tcp_links(listener_, settings_, peers, secret), peers.frame_bytes);
  wire->open_datagrams(peers, secret, settings_.datagrams);
  return wire;
}

}  // namespace collectives
