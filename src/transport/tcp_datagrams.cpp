// Datagrams of the TCP transport: two ranks agree on them at the start, and lost ones are sent again on the control
// connection. tcp.cpp sends and receives them.
#include <chrono>
#include <exception>
#include <memory>

#include "collectives/error.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

namespace {

using Clock = std::chrono::steady_clock;

/// Time for which a rank waits for the probe of a peer after the peer has reported that it sent one.
constexpr auto kProbePatience = std::chrono::milliseconds(100);
/// Time between two probes.
constexpr auto kProbeAgain = std::chrono::milliseconds(20);

}  // namespace

/// The agreement of this rank with each peer on datagrams. The functions are called once each, in their order here. A
/// link that fails in one of them is dropped, and messages to its peer then use the stream.
class TcpTransport::DatagramHandshake {
 public:
  DatagramHandshake(TcpTransport& transport, std::uint64_t token, const DatagramSettings& settings, Deadline deadline)
      : transport_(transport), token_(token), settings_(settings), deadline_(deadline) {}

  /// Binds a socket for each peer, and exchanges the ports.
  void exchange_ports() {
    for_each_peer([&](Rank rank, Peer& one) {
      if (settings_.on)
        drop_if_failed(one, [&] { one.datagrams = std::make_unique<DatagramLink>(one.data, token_, settings_); });
      const std::uint16_t port = one.datagrams != nullptr ? one.datagrams->port() : 0;
      transport_.post(rank, kPort, bytes_of(port));
    });
    wait_for_all(deadline_, [](const Peer& one) { return one.port.has_value(); });
  }

  void connect() {
    for_each_peer([&](Rank, Peer& one) {
      if (one.port.value_or(0) == 0) one.datagrams = nullptr;
      if (one.datagrams == nullptr) return;
      drop_if_failed(one, [&] { one.datagrams->connect(one.data, *one.port); });
    });
  }

  /// A peer that has sent no probe yet may be waiting for a core. If a probe was sent and does not arrive in 0.1 s, the
  /// link uses no datagrams.
  void exchange_probes() {
    for_each_peer([&](Rank rank, Peer& one) {
      if (one.datagrams != nullptr) one.datagrams->probe();
      transport_.post(rank, kProbed, {});
    });
    probe_until_all([](Peer& one) {
      const bool in_vain = one.probed && Clock::now() - *one.probed > kProbePatience;
      return one.datagrams == nullptr || one.datagrams->heard() || in_vain;
    });
  }

  /// Exchanges whether probes have arrived.
  void exchange_results() {
    for_each_peer([&](Rank rank, Peer& one) {
      one.by_datagram = one.datagrams != nullptr && one.datagrams->heard();
      transport_.post(rank, kHeard, bytes_of(one.by_datagram));
      if (!one.by_datagram)
        one.datagrams = nullptr;  // The peer sends none after kHeard(false). No other thread runs yet.
    });
    probe_until_all([](const Peer& one) { return one.heard.has_value(); });
  }

  /// Permits datagrams to the peers with which they arrive in both directions.
  void allow() {
    for_each_peer([&](Rank, Peer& one) {
      if (!one.by_datagram || !one.heard.value_or(false)) return;  // Acknowledgements need the other direction.
      try {
        if (transport_.retransmitter_ == nullptr)
          transport_.retransmitter_ = std::make_unique<Retransmitter>(
              [transport = &transport_] { return transport->retransmit_datagrams(false); });
        one.datagrams->allow();
      } catch (const std::exception&) {  // Without the thread, messages to the peer use the stream.
      }
    });
  }

 private:
  template <class Visit>
  void for_each_peer(Visit visit) {
    for (std::size_t rank = 0; rank < transport_.peers_.size(); ++rank)
      if (transport_.peers_[rank] != nullptr) visit(static_cast<Rank>(rank), *transport_.peers_[rank]);
  }

  /// Drops the link to the peer if `act` throws an Error.
  template <class Act>
  static void drop_if_failed(Peer& one, Act act) {
    try {
      act();
    } catch (const Error&) {
      one.datagrams = nullptr;
    }
  }

  /// Blocks until `has` is true for every peer that has not left, or until `until`. Returns whether it is.
  template <class Has>
  bool wait_for_all(Deadline until, Has has) {
    for (;;) {
      transport_.look_at_controls();
      transport_.progress();
      bool all = true;
      for_each_peer([&](Rank, Peer& one) { all = (one.control.ended() || has(one)) && all; });
      if (all || until.passed()) return all;
      transport_.wait_for_event(std::chrono::milliseconds(1));
    }
  }

  /// Calls wait_for_all() until the deadline, and repeats the probes. A probe may get lost, and a rank that has
  /// received all probes may not have been received itself.
  template <class Has>
  void probe_until_all(Has has) {
    do
      for_each_peer([](Rank, Peer& one) {
        if (one.datagrams != nullptr) one.datagrams->probe();
      });
    while (!wait_for_all(Deadline::in(kProbeAgain), has) && !deadline_.passed());
  }

  TcpTransport& transport_;
  const std::uint64_t token_;
  const DatagramSettings& settings_;
  const Deadline deadline_;
};

void TcpTransport::open_datagrams(std::uint64_t token, const DatagramSettings& settings, Deadline deadline) {
  DatagramHandshake handshake(*this, token, settings, deadline);
  handshake.exchange_ports();
  handshake.connect();
  handshake.exchange_probes();
  handshake.exchange_results();
  handshake.allow();
}

/// Returns whether some messages may still have to be retransmitted. May be called from any thread.
bool TcpTransport::retransmit_datagrams(bool all) {
  bool left = false;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank] != nullptr && peers_[rank]->datagrams != nullptr)
      left = peers_[rank]->datagrams->retransmit(all, [&](std::string_view text) {
        return post(static_cast<Rank>(rank), kRetransmission, text);
      }) || left;
  return write_waiting_controls() || left;
}

/// Sends all acknowledgements and retransmits all unacknowledged datagrams, because no later call may do so.
void TcpTransport::flush_datagrams() {
  for (std::size_t rank = 0; rank < peers_.size(); ++rank)
    if (peers_[rank] != nullptr && peers_[rank]->datagrams != nullptr &&
        peers_[rank]->datagrams->clear_unacknowledged())
      post(static_cast<Rank>(rank), kAcknowledged, bytes_of(Acknowledged{peers_[rank]->expected, 0}));
  retransmit_datagrams(true);
}

void TcpTransport::handle_datagram_control(Rank rank, std::string_view text) {
  Peer& from = peer(rank);
  const std::string_view kind = text.substr(0, kPort.size());
  text.remove_prefix(kind.size());
  if (kind == kPort) from.port = read_as<std::uint16_t>(text);
  if (kind == kProbed) from.probed = Clock::now();
  if (kind == kHeard) from.heard = read_as<bool>(text);
  if (from.datagrams == nullptr) return;
  if (kind == kRetransmission && !from.datagrams->receive_retransmitted(text, from.expected))
    post(rank, kAcknowledged, bytes_of(Acknowledged{from.expected, 0}));
  if (kind == kAcknowledged) {
    const auto taken = read_as<Acknowledged>(text);
    from.datagrams->acknowledged(taken.next, taken.lost != 0);
  }
}

std::uint64_t TcpTransport::datagrams_sent() const {
  std::uint64_t sent = 0;
  for (const auto& to : peers_)
    if (to != nullptr && to->datagrams != nullptr) sent += to->datagrams->sent();
  return sent;
}

}  // namespace collectives
