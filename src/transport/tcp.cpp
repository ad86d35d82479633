// Implementation of the TCP transport, which exchanges messages with the ranks of other hosts. The transport has a data
// connection and a control connection to each peer. It may also send short messages by UDP datagrams (tcp.hpp). This
// file sends, receives, waits for events of the sockets, and reports lost peers.
#include "transport/tcp.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "base/log.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "transport/epoll.hpp"

namespace collectives {

TcpTransport::TcpTransport(std::vector<TcpLink> links, std::size_t frame_bytes)
    : frame_bytes_(frame_bytes),
      controls_(links.size()),
      datagrams_(links.size(), controls_),
      everything_(make_epoll()) {
  for (std::size_t index = 0; index < links.size(); ++index) {
    if (links[index].data.fd() < 0) {
      peers_.add(nullptr);
      continue;
    }
    const auto rank = static_cast<Rank>(index);
    auto added = std::make_unique<TcpPeer>(rank, std::move(links[index].data), frame_bytes);
    // Edge-triggered (EPOLLET): the epoll reports an event once. This suffices, because the caller tries all reads and
    // writes before it sleeps.
    epoll_add(everything_, added->stream.socket(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 0);
    controls_.add(rank, std::move(links[index].control));
    datagrams_.add(rank, added->stream.socket(), added->expected);
    peers_.add(std::move(added));
  }
  epoll_add(everything_, controls_.epoll(), EPOLLIN | EPOLLET, 0);
}

void TcpTransport::open_datagrams(const PeerAddresses& peers, const WireSecret& secret,
                                  const DatagramSettings& settings) {
  datagrams_.open(peers, secret, settings, [this](std::chrono::nanoseconds at_most) {
    if (at_most.count() > 0) wait_for_event(at_most);
    read_controls();
    progress();
  });
  peers_.for_each([this](TcpPeer& peer) { peer.datagrams = datagrams_.link(peer.rank); });
}

// ---- sending ----

std::byte* TcpTransport::acquire_frame(Rank to) { return peers_[to].stream.acquire_frame(); }

void TcpTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  hand_over(to, tag, peers_[to].stream.return_frame(), bytes, false);
}

void TcpTransport::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  peers_[to].stream.return_frame();
  hand_over(to, tag, data, bytes, true);
}

void TcpTransport::hand_over(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool lent) {
  TcpPeer& receiver = peers_[to];
  TcpStream& stream = receiver.stream;
  if (!stream.failure().empty() || abandoned_) return stream.discard();
  const MessageHeader header{tag, static_cast<std::uint32_t>(bytes), receiver.numbered};
  const bool as_datagram = !stream.has_queued() && receiver.datagrams != nullptr &&
                           receiver.datagrams->send(header, data, receiver.expected);
  ++receiver.numbered;
  if (as_datagram) return datagrams_.note_sent();
  stream.queue(header, data, lent);
  if (receiver.writing || stream.write_new()) return;
  receiver.writing = true;
  writing_.push_back(&receiver);
}

bool TcpTransport::lent(const std::byte* data, std::size_t bytes) const noexcept {
  for (const TcpPeer* to : writing_)
    if (to->stream.reads_from(data, bytes)) return true;
  return false;
}

void TcpTransport::progress() {
  if (!writing_.empty())
    std::erase_if(writing_, [](TcpPeer* to) {
      if (!to->stream.write_some()) return false;
      to->writing = false;
      return true;
    });
  controls_.write_waiting();
}

void TcpTransport::flush(Deadline deadline) {
  for (;;) {
    datagrams_.flush();
    progress();
    std::vector<Rank> waiting;
    peers_.for_each([&](const TcpPeer& to) {
      if (!to.stream.failure().empty() || controls_.has_ended(to.rank)) return;
      if (to.stream.has_queued() || controls_.has_unsent(to.rank)) waiting.push_back(to.rank);
    });
    if (waiting.empty()) return;
    if (deadline.passed())
      throw Error(Errc::timeout, fmt::format("transport tcp: {} has not taken its messages", ranks_text(waiting)),
                  kNoRank, waiting.front());
    read_controls();  // Finds peers that have left. flush() must not wait for them, because they take no messages.
    ::poll(nullptr, 0, 1);
  }
}

// ---- receiving ----

const Message* TcpTransport::receive_into(Rank rank, std::byte* place, std::size_t bytes) {
  TcpPeer& from = peers_[rank];
  if (from.open) return &from.message;
  if (abandoned_ || from.starved) return nullptr;
  const bool has_datagrams = from.datagrams != nullptr;
  // A lost datagram is sent again on the control connection.
  if (has_datagrams && ++from.looks % kLooksPerControl == 0) read_controls();
  from.open = from.take(place, bytes, controls_);
  if (from.open) return &from.message;
  from.starved = from.stream.has_ended() && (!has_datagrams || controls_.has_ended(rank));
  return nullptr;
}

void TcpTransport::release(Rank rank) { peers_[rank].open = false; }

// ---- control messages and lost peers ----

/// Reads the control connections, which carry short texts. Handles the texts of the transport itself, and stores texts
/// for the caller.
void TcpTransport::read_controls() {
  controls_.read();
  while (auto end = controls_.take_ended()) peers_.note_end(end->first, std::move(end->second));
  while (const auto text = controls_.take_own()) datagrams_.handle_control(text->first, text->second);
}

std::optional<std::pair<Rank, std::string>> TcpTransport::poll_control() {
  if (!controls_.has_texts()) {
    progress();
    read_controls();
  }
  return controls_.take();
}

std::optional<std::pair<Rank, std::string>> TcpTransport::poll_failed_peer() {
  // A peer may send a text with a reason before its connections end. The caller therefore gets all texts before it gets
  // the report of a lost peer.
  read_controls();
  if (controls_.has_texts()) return std::nullopt;
  return peers_.next_lost();
}

// ---- faults for tests of programs ----

bool TcpTransport::can_cause(WireFault fault, Rank to) const noexcept {
  const TcpPeer* const peer = peers_.find(to);
  return peer != nullptr && (fault == WireFault::cut || peer->datagrams != nullptr);
}

/// Ends both connections to a peer in both directions, to simulate a failure. Both ranks then find that the other one
/// is lost.
void TcpTransport::cut(Rank to) noexcept {
  TcpPeer& cut_off = peers_[to];
  cut_off.datagrams = nullptr;
  ::shutdown(cut_off.stream.socket().fd(), SHUT_RDWR);
  controls_.shut_down(to);
}

unsigned TcpTransport::lose(Rank to, unsigned datagrams) noexcept {
  DatagramLink* const link = peers_[to].datagrams;
  return link == nullptr ? 0 : link->lose(datagrams);
}

// ---- waiting and leaving ----

std::string TcpTransport::link(Rank to) const {
  const int fd = peers_[to].stream.socket().fd();
  const auto text = [fd](auto ask) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    if (ask(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0)
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return std::string(host);
  };
  return fmt::format("{} to {}", text(::getsockname), text(::getpeername));
}

/// Sleeps in one ppoll of the epoll and of the datagram sockets. The epoll, an object of the kernel, watches the other
/// sockets. The epoll does not watch the datagram sockets. If it did, the kernel would search for sleeping processes at
/// each datagram. This search would add a fifteenth to a message's time. If `at_most` is 0, does not poll the datagram
/// sockets, because the caller has just read them.
void TcpTransport::wait_for_event(std::chrono::nanoseconds at_most) {
  polled_.assign(1, {everything_.fd(), POLLIN, 0});
  if (at_most.count() > 0) datagrams_.append_sockets(polled_);
  const timespec time{static_cast<time_t>(at_most.count() / 1'000'000'000),
                      static_cast<long>(at_most.count() % 1'000'000'000)};
  int found = ::ppoll(polled_.data(), polled_.size(), &time, nullptr);
  if (found < 0 && errno == EINVAL) {  // The sockets exceed the limit of open files, which the program has lowered.
    polled_.resize(1);
    found = ::ppoll(polled_.data(), 1, &time, nullptr);
  }
  if (found <= 0) return;
  std::array<epoll_event, 32> events;
  ::epoll_wait(everything_.fd(), events.data(), static_cast<int>(events.size()), 0);
  // Reads the datagrams, because unread ones would end the next wait_for_event() at once.
  datagrams_.read_polled(std::span(polled_).subspan(1));
  read_controls();  // The retransmission of a lost datagram may have arrived.
}

void TcpTransport::abandon() noexcept {
  abandoned_ = true;
  writing_.clear();
  peers_.for_each([](TcpPeer& peer) {
    peer.stream.discard();
    peer.stream.forget_place();
  });
  try {
    datagrams_.flush();              // Datagrams of completed calls must still arrive.
  } catch (const std::exception&) {  // Out of memory; the retransmission thread tries again.
  }
}

/// Retransmits what is unacknowledged, and reads the control connections before they are closed. A kernel that closes a
/// connection with unread input drops the bytes that the peer has not read.
TcpTransport::~TcpTransport() {
  datagrams_.stop_retransmitter();
  try {
    datagrams_.flush();
  } catch (const std::exception&) {  // Out of memory.
  }
  progress();
  read_controls();
  if (const std::uint64_t dropped = datagrams_.dropped(); dropped > 0)
    log_info(kNoRank, "transport tcp: dropped {} datagrams of other processes", dropped);
}

}  // namespace collectives
