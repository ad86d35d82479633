// Implementation of the datagram links, which carry short messages between ranks by UDP. Each pair of ranks also has
// two TCP connections. The first one, called the stream, carries all other messages. The second one belongs to the
// control channel, which carries short texts. During construction, a handshake tests whether datagrams arrive at all.
// The control channel carries the reports of this handshake. It also carries copies of messages whose datagrams were
// lost.
#include "transport/datagram_links.hpp"

#include <exception>
#include <string>

#include "collectives/error.hpp"
#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

namespace {

using Clock = std::chrono::steady_clock;

/// Time for which a rank waits for a probe after the peer has reported that it sent one. A probe is a test datagram of
/// the handshake, which is as long as a packet and carries no message.
constexpr auto kProbePatience = std::chrono::milliseconds(100);
/// Time between two probes to the same peer.
constexpr auto kProbeAgain = std::chrono::milliseconds(20);

}  // namespace

void DatagramLinks::add(Rank rank, const tcp::Socket& stream, const std::uint32_t& expected) {
  Peer& added = peers_[static_cast<std::size_t>(rank)];
  added.stream = &stream;
  added.expected = &expected;
}

/// Handshake with all peers. DatagramLinks::open() calls each public function of this class once, in the order of their
/// definitions.
class DatagramLinks::Handshake {
 public:
  Handshake(DatagramLinks& links, const PeerAddresses& peers, const WireSecret& secret,
            const DatagramSettings& settings, const Progress& progress)
      : links_(links), peers_(peers), secret_(secret), settings_(settings), progress_(progress) {}

  /// Opens a UDP socket for each peer, and exchanges the ports of these sockets with the peers.
  void exchange_ports() {
    for_each_peer([&](Rank rank, Peer& one) {
      if (settings_.on)
        drop_if_failed(one, [&] {
          const DatagramLink::Tokens tokens{.sent = secret_.datagram_token(peers_.self, rank),
                                            .received = secret_.datagram_token(rank, peers_.self)};
          one.link = std::make_unique<DatagramLink>(*one.stream, tokens, settings_);
        });
      const std::uint16_t port = one.link != nullptr ? one.link->port() : 0;
      links_.controls_.post(rank, kPort, bytes_of(port));
    });
    wait_for_all(peers_.deadline, [](const Peer& one) { return one.port.has_value(); });
  }

  void connect() {
    for_each_peer([&](Rank, Peer& one) {
      if (one.port.value_or(0) == 0) one.link = nullptr;
      if (one.link == nullptr) return;
      drop_if_failed(one, [&] { one.link->connect(*one.stream, *one.port); });
    });
  }

  /// Sends probes until one has arrived from every peer. Each peer also reports on the control channel that it has sent
  /// a probe. This rank waits for the report until the deadline, because the peer may have no core at that time. If no
  /// probe arrives within 0.1 s after the report, the link is not used.
  void exchange_probes() {
    for_each_peer([&](Rank rank, Peer& one) {
      if (one.link != nullptr) one.link->probe();
      links_.controls_.post(rank, kProbed, {});
    });
    probe_until_all([](Peer& one) {
      const bool in_vain = one.probed && Clock::now() - *one.probed > kProbePatience;
      return one.link == nullptr || one.link->heard() || in_vain;
    });
  }

  /// Reports to each peer whether the peer's probe has arrived at this rank. Waits until each peer has reported whether
  /// this rank's probe has arrived there.
  void exchange_results() {
    for_each_peer([&](Rank rank, Peer& one) {
      const bool heard = one.link != nullptr && one.link->heard();
      links_.controls_.post(rank, kHeard, bytes_of(std::uint8_t{heard}));
      // The peer sends no datagrams after kHeard(false). No other thread uses the link yet.
      if (!heard) one.link = nullptr;
    });
    probe_until_all([](const Peer& one) { return one.heard.has_value(); });
  }

  /// Permits datagrams to each peer with which probes have arrived in both directions.
  void allow() {
    for_each_peer([&](Rank, Peer& one) {
      if (one.link == nullptr || !one.heard.value_or(false)) return;
      try {
        if (links_.retransmitter_ == nullptr)
          links_.retransmitter_ =
              std::make_unique<Retransmitter>([links = &links_] { return links->retransmit(false); });
        one.link->allow();
      } catch (const std::exception&) {  // Without the thread, messages to the peer use the stream.
      }
    });
  }

 private:
  template <class Visit>
  void for_each_peer(Visit visit) {
    for (std::size_t rank = 0; rank < links_.peers_.size(); ++rank)
      if (links_.peers_[rank].stream != nullptr) visit(static_cast<Rank>(rank), links_.peers_[rank]);
  }

  /// Drops the link to the peer if `act` throws an Error.
  template <class Act>
  static void drop_if_failed(Peer& one, Act act) {
    try {
      act();
    } catch (const Error&) {
      one.link = nullptr;
    }
  }

  /// Blocks until `has` is true for every peer that has not left, or until the deadline `until`. Returns false at the
  /// deadline.
  template <class Has>
  bool wait_for_all(Deadline until, Has has) {
    progress_(std::chrono::milliseconds(0));
    for (;;) {
      std::vector<Rank> missing;
      for_each_peer([&](Rank rank, Peer& one) {
        if (!links_.controls_.has_ended(rank) && !has(one)) missing.push_back(rank);
      });
      if (missing.empty()) return true;
      const auto awaited = [&] {
        return ReportedWait::Awaited{.ranks = missing, .last_answer = "connected, and silent in the test of datagrams"};
      };
      over_ = peers_.is_over(awaited);
      if (over_ || until.passed()) return false;
      progress_(std::chrono::milliseconds(1));
    }
  }

  /// Waits like wait_for_all(), and sends the probes again every 20 ms. A probe may get lost. Even a rank that has
  /// received all probes sends its own again, because a peer may still wait for it.
  template <class Has>
  void probe_until_all(Has has) {
    do
      for_each_peer([](Rank, Peer& one) {
        if (one.link != nullptr) one.link->probe();
      });
    while (!wait_for_all(Deadline::in(kProbeAgain), has) && !over_);
  }

  DatagramLinks& links_;
  const PeerAddresses& peers_;
  const WireSecret& secret_;
  const DatagramSettings& settings_;
  const Progress& progress_;
  bool over_ = false;  // Whether the deadline has passed.
};

void DatagramLinks::open(const PeerAddresses& peers, const WireSecret& secret, const DatagramSettings& settings,
                         const Progress& progress) {
  Handshake handshake(*this, peers, secret, settings, progress);
  handshake.exchange_ports();
  handshake.connect();
  handshake.exchange_probes();
  handshake.exchange_results();
  handshake.allow();
}

/// Retransmits the messages that are due, or `all` unacknowledged ones. Returns whether some may still have to be
/// retransmitted. Any thread may call it.
bool DatagramLinks::retransmit(bool all) {
  bool left = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank].link != nullptr)
      left = peers_[rank].link->retransmit(all, [&](std::string_view text) {
        return controls_.post(static_cast<Rank>(rank), kRetransmission, text);
      }) || left;
  return controls_.write_waiting() || left;
}

void DatagramLinks::flush() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank].link != nullptr && peers_[rank].link->clear_unacknowledged())
      controls_.post(static_cast<Rank>(rank), kAcknowledged, bytes_of(Acknowledged{*peers_[rank].expected, 0}));
  retransmit(true);
}

void DatagramLinks::handle_control(Rank rank, std::string_view text) {
  Peer& from = peers_[static_cast<std::size_t>(rank)];
  const std::string_view kind = text.substr(0, kPort.size());
  text.remove_prefix(kind.size());
  if (const auto port = read_as<std::uint16_t>(text); kind == kPort && port) from.port = port;
  if (kind == kProbed && !from.probed) from.probed = Clock::now();
  if (const auto heard = read_as<std::uint8_t>(text); kind == kHeard && heard) from.heard = *heard != 0;
  if (from.link == nullptr) return;
  if (kind == kRetransmission && !from.link->receive_retransmitted(text, *from.expected))
    controls_.post(rank, kAcknowledged, bytes_of(Acknowledged{*from.expected, 0}));
  if (kind == kAcknowledged) {
    if (const auto taken = read_as<Acknowledged>(text)) from.link->acknowledged(taken->next, taken->lost != 0);
  }
}

std::uint64_t DatagramLinks::sent() const {
  std::uint64_t sent = 0;
  for (const Peer& to : peers_)
    if (to.link != nullptr) sent += to.link->sent();
  return sent;
}

std::uint64_t DatagramLinks::dropped() const {
  std::uint64_t dropped = 0;
  for (const Peer& from : peers_)
    if (from.link != nullptr) dropped += from.link->dropped();
  return dropped;
}

void DatagramLinks::append_sockets(std::vector<pollfd>& polled) const {
  for (const Peer& one : peers_)
    if (one.link != nullptr) polled.push_back({one.link->socket().fd(), POLLIN, 0});
}

void DatagramLinks::read_polled(std::span<const pollfd> polled) {
  std::size_t next = 0;
  for (Peer& one : peers_) {
    if (next == polled.size()) break;
    if (one.link != nullptr && polled[next++].revents != 0) one.link->read_ahead(*one.expected);
  }
}

}  // namespace collectives
