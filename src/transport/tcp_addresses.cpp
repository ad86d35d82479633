// Implementation of the addresses of the TCP network. This file lists the network interfaces of this host. It writes
// and reads the text by which a rank publishes its addresses, so that other ranks can connect to it.
#include "transport/tcp_addresses.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <utility>

#include "base/error_text.hpp"
#include "base/json.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

using nlohmann::json;

constexpr std::size_t kMostAddresses = 256;  // Maximum number of addresses that a rank may publish.
constexpr int kLastPort = 65535;

/// Returns a text that identifies the network namespace of this process: the boot id of the kernel and the inode of the
/// namespace. Processes with the same text can connect over loopback.
std::string network_of_this_process() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  struct stat status {};
  if (boot.empty() || ::stat("/proc/self/ns/net", &status) != 0) return "";
  return fmt::format("{}:{}", boot, status.st_ino);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof text);
  return text;
}

std::vector<std::uint8_t> address_bytes(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr);
    return {at, at + 4};
  }
  const auto* at = reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return {at, at + 16};
}

std::optional<TcpAddress> make_address(const std::string& text, int port) {
  TcpAddress address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof *four;
    address.text = fmt::format("{}:{}", text, port);
  } else if (::inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<std::uint16_t>(port));
    address.bytes = sizeof *six;
    address.text = fmt::format("[{}]:{}", text, port);
  } else {
    return std::nullopt;
  }
  return address;
}

[[noreturn]] void refuse_published() {
  throw Error(Errc::bootstrap, "transport tcp: a rank has published a malformed address");
}

bool is_in_network_of(const NetworkInterface& mine, const TcpAddress& theirs) {
  const auto bytes = address_bytes(reinterpret_cast<const sockaddr*>(&theirs.storage));
  if (bytes.size() != mine.bytes.size()) return false;
  for (int bit = 0; bit < mine.prefix; ++bit) {
    const auto byte = static_cast<std::size_t>(bit / 8);
    if (((bytes[byte] ^ mine.bytes[byte]) >> (7 - bit % 8)) & 1) return false;
  }
  return true;
}

}  // namespace

std::vector<NetworkInterface> interfaces_up() {
  std::vector<NetworkInterface> found;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) throw Error(Errc::system, "getifaddrs: " + error_text(errno));
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0 || (at->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    NetworkInterface one{at->ifa_name, text_of(at->ifa_addr), address_bytes(at->ifa_addr), 0};
    // link-local address: valid on one link only
    if (family == AF_INET6 && one.bytes[0] == 0xfe && (one.bytes[1] & 0xc0) == 0x80) continue;
    if (at->ifa_netmask != nullptr)
      for (const std::uint8_t byte : address_bytes(at->ifa_netmask)) one.prefix += __builtin_popcount(byte);
    found.push_back(std::move(one));
  }
  ::freeifaddrs(all);
  return found;
}

bool is_allowed(const NetworkInterface& one, const std::vector<std::string>& interfaces) {
  return interfaces.empty() || std::ranges::any_of(interfaces, [&](const std::string& wanted) {
           return one.name == wanted || one.address.starts_with(wanted);
         });
}

std::vector<std::string> own_addresses(const std::vector<std::string>& interfaces) {
  std::vector<std::string> addresses;
  for (const NetworkInterface& one : interfaces_up())
    if (is_allowed(one, interfaces)) addresses.push_back(one.address);
  return addresses;
}

std::string published_address(int port, const std::vector<std::string>& interfaces) {
  return json_text(json{{"network", network_of_this_process()}, {"port", port}, {"at", own_addresses(interfaces)}});
}

std::vector<TcpAddress> read_published_address(std::string_view text, const std::vector<NetworkInterface>& mine) {
  const json published = parse_json(text);
  const auto has = [&](const char* name, auto is_of_type) {
    return published.is_object() && published.contains(name) && (published.at(name).*is_of_type)();
  };
  if (!has("network", &json::is_string) || !has("port", &json::is_number_integer) || !has("at", &json::is_array))
    refuse_published();
  const auto port = published.at("port").get<std::int64_t>();
  const json& texts = published.at("at");
  if (port < 1 || port > kLastPort || texts.size() > kMostAddresses) refuse_published();
  std::vector<TcpAddress> near, far;
  if (const std::string network = network_of_this_process(); !network.empty() && published.at("network") == network)
    for (const char* loopback : {"127.0.0.1", "::1"}) near.push_back(*make_address(loopback, static_cast<int>(port)));
  for (const json& each : texts) {
    if (!each.is_string() || each.get_ref<const std::string&>().size() >= INET6_ADDRSTRLEN) refuse_published();
    if (const auto address = make_address(each.get_ref<const std::string&>(), static_cast<int>(port)))
      (std::ranges::any_of(mine, [&](const NetworkInterface& one) { return is_in_network_of(one, *address); }) ? near
                                                                                                               : far)
          .push_back(*address);
  }
  near.insert(near.end(), far.begin(), far.end());
  return near;
}

}  // namespace collectives
