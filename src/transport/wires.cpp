// Implementation of the choice of the wire, the object by which a rank exchanges messages with ranks of other hosts.
// Each rank publishes an offer for each wire: its address on that wire, or the reason why it cannot use the wire. The
// candidates are the wires that all ranks can use. The ranks try one candidate after the other. The head of wires.hpp
// shows the order.
#include "transport/wires.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/hex.hpp"
#include "base/json_record.hpp"
#include "base/log.hpp"
#include "base/reported_wait.hpp"
#include "bootstrap/exchange.hpp"
#include "collectives/error.hpp"
#include "transport/tcp_network.hpp"
#include "transport/ucx_loader.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// Maximum time for which ranks try one wire. The time is limited, because an attempt may get no answer, for example
/// because of a firewall.
constexpr auto kConnectPatience = std::chrono::seconds(30);

/// Returns whether the machine has a network device that MPI or UCX may drive faster than the kernel's TCP.
bool has_fast_network() {
  for (const char* devices : {"/sys/class/infiniband", "/sys/class/cxi"}) {
    std::error_code unreadable;
    const std::filesystem::directory_iterator found(devices, unreadable);
    if (!unreadable && found != std::filesystem::directory_iterator()) return true;
  }
  return false;
}

/// Maximum number of bytes of an address as text. UCX addresses grow with the number of network devices.
constexpr std::size_t kMostAddressText = std::size_t{32} << 10;

/// Returns the address of the wire `name` in the offer of a rank.
std::string address_in(const JsonRecord& offer, const std::string& name) {
  const auto bytes = from_hex(offer.object("wires").text(name, kMostAddressText));
  if (!bytes) offer.refuse(fmt::format("the address for the wire \"{}\" is no hexadecimal text", name));
  return *bytes;
}

std::unique_ptr<Network> open_network(const std::string& name, Rank rank) {
  const Environment said = environment();
  if (name == "tcp") {
    const TcpSettings settings{.interfaces = said.interfaces,
                               .congestion_control = said.congestion_control.value_or("cubic"),
                               .datagrams = {.on = said.datagrams.value_or(true)}};
    static std::once_flag warned;  // Every process warns, because hosts may have different interfaces.
    std::call_once(warned, [&] {
      if (const std::string text = what_matches_nothing(settings); !text.empty())
        log_warning(rank, "transport tcp: {}", text);
    });
    return std::make_unique<TcpNetwork>(settings);
  }
  if (name == "ucx") {
    std::string why_not;
    if (auto network = load_ucx_network(why_not)) return network;
    throw Error(Errc::unsupported, why_not);
  }
  throw Error(Errc::unsupported, fmt::format("no wire \"{}\" here", name));
}

/// Returns the first result with an error that states a cause. If there is none, returns the first timeout, and only
/// then the first lost rank. Reason: all ranks have sent a result, so none has ended. A rank whose deadline has passed
/// closes its connections, and the other ranks then find it lost.
auto first_failure(const std::vector<JsonRecord>& results) {
  const auto find = [&](auto&& is_found) {
    return std::ranges::find_if(results,
                                [&](const JsonRecord& one) { return one.has("error") && is_found(code_in(one)); });
  };
  auto found = find([](Errc code) { return code != Errc::peer_lost && code != Errc::timeout; });
  if (found == results.end()) found = find([](Errc code) { return code == Errc::timeout; });
  return found != results.end() ? found : find([](Errc) { return true; });
}

}  // namespace

Wires::Wires(Situation situation, Exchange exchange) : with_(std::move(situation)), exchange_(std::move(exchange)) {
  for (const auto& host : with_.hosts) ranks_ += static_cast<int>(host.size());
  host_of_.resize(static_cast<std::size_t>(ranks_));
  for (std::size_t h = 0; h < with_.hosts.size(); ++h)
    for (const Rank rank : with_.hosts[h]) host_of_[static_cast<std::size_t>(rank)] = static_cast<int>(h);
}

/// Returns addresses for the wires that this rank can use. Also returns, for each wire that this rank has tried and
/// cannot use, the reason.
json Wires::offers() {
  json offers{{"wires", json::object()}, {"why_not", json::object()}, {"fast", has_fast_network()}};
  std::vector<std::string> wanted{with_.asked_for};
  if (with_.asked_for.empty()) {
    wanted = {"tcp"};
    std::string why_not;  // The reason is not reported, because the user has not asked for ucx.
    if (offers["fast"] && ucx_has_fast_device(why_not)) wanted.emplace_back("ucx");
  }
  for (const std::string& name : wanted) try {
      if (name == with_.factory.name) continue;
      networks_.push_back(open_network(name, with_.rank));
      offers["wires"][name] = to_hex(networks_.back()->address());
    } catch (const Error& error) {
      offers["why_not"][name] = error.what();
    }
  if (with_.factory.make) offers["wires"][std::string(with_.factory.name)] = "";
  if (with_.asked_for == "mpi" && !with_.factory.make) offers["why_not"]["mpi"] = "the ranks were not started with MPI";
  return offers;
}

std::vector<std::string> Wires::candidates(const std::vector<JsonRecord>& offers) const {
  const auto everybody_has = [&](const std::string& name) {
    return std::ranges::all_of(
        offers, [&](const JsonRecord& offer) { return offer.has("wires") && offer.object("wires").has(name); });
  };
  const bool fast =
      std::ranges::any_of(offers, [](const JsonRecord& offer) { return offer.has("fast") && offer.boolean("fast"); });
  std::vector<std::string> order;
  const std::string from_bootstrap(with_.factory.name);
  if (!with_.asked_for.empty()) {
    order = {with_.asked_for};
  } else if (with_.factory.preferred) {
    order = {from_bootstrap};
  } else {
    if (fast) order = {"ucx", from_bootstrap};
    for (const std::string& name : {std::string("tcp"), from_bootstrap})
      if (std::ranges::find(order, name) == order.end()) order.push_back(name);
  }
  std::erase_if(order, [&](const std::string& name) { return !everybody_has(name); });
  return order;
}

std::unique_ptr<Wire> Wires::make(const std::string& name, const std::vector<JsonRecord>& offers) {
  if (with_.factory.make && name == with_.factory.name) {
    std::vector<Rank> members(static_cast<std::size_t>(ranks_));
    std::iota(members.begin(), members.end(), 0);
    *with_.factory.next_context = with_.context + 1;
    return with_.factory.make(members, with_.context, with_.frame_bytes);
  }
  PeerAddresses peers{.self = with_.rank,
                      .addresses = {},
                      .hosts = host_of_,
                      .token = with_.token,
                      .frame_bytes = with_.frame_bytes,
                      .deadline = std::min(with_.deadline, Deadline::in(kConnectPatience))};
  const ReportedWait::Describe* awaited = nullptr;
  ReportedWait wait(
      fmt::format("connect over {}", name), with_.rank, peers.deadline,
      [&] { return awaited == nullptr ? ReportedWait::Awaited{} : (*awaited)(); }, with_.check_peers);
  peers.turn = [&](const ReportedWait::Describe& now) {
    awaited = &now;
    return wait.is_over();
  };
  for (const JsonRecord& offer : offers) peers.addresses.push_back(address_in(offer, name));
  return (*std::ranges::find(networks_, name, &Network::name))->connect(peers);
}

void Wires::refuse(const std::vector<JsonRecord>& offers) const {
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    const JsonRecord& offer = offers[rank];
    const std::string asked = with_.asked_for.empty() ? "tcp" : with_.asked_for;
    std::string why = error_in(offer);
    if (why.empty() && offer.object("why_not").has(asked))
      why = offer.object("why_not").text(asked);
    else if (why.empty() && !offer.object("wires").has(asked))
      why = fmt::format("it has no wire \"{}\"", asked);
    if (!why.empty())
      throw Error(Errc::unsupported,
                  fmt::format("the ranks are on {} hosts, and rank {} has no wire between them: {}", with_.hosts.size(),
                              rank, why),
                  with_.rank, static_cast<Rank>(rank), "construction");
  }
  throw Error(Errc::unsupported,
              fmt::format("the ranks are on {} hosts, and have no wire in common", with_.hosts.size()), with_.rank,
              kNoRank, "construction");
}

std::unique_ptr<Wire> Wires::connect() {
  const std::vector<JsonRecord> offered = exchange_(attempt([&] { return offers(); }), true);
  const std::vector<std::string> names = candidates(offered);
  if (names.empty()) refuse(offered);
  for (std::size_t i = 0;; ++i) {
    const std::string& name = names[i];
    const bool is_last = i + 1 == names.size();
    std::unique_ptr<Wire> wire;
    const json mine = attempt([&] {
      wire = make(name, offered);
      return json::object();
    });
    const std::vector<JsonRecord> results = exchange_(mine, is_last);
    const auto failed = first_failure(results);
    if (failed == results.end()) return wire;
    const auto who = static_cast<Rank>(failed - results.begin());
    const std::string why = error_in(*failed);
    if (is_last) throw Error(code_in(*failed), fmt::format("rank {}: {}", who, why), with_.rank, who, "construction");
    if (with_.rank == 0) log_warning(who, "{}; trying {} instead", why, names[i + 1]);
  }
}

}  // namespace collectives
