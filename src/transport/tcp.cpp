// Sending, receiving and waiting. tcp_control.cpp holds the control messages; tcp_datagrams.cpp holds the agreement of
// two ranks on datagrams, and retransmissions.
#include "transport/tcp.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

namespace {

using Clock = std::chrono::steady_clock;

tcp::Socket make_epoll() {
  tcp::Socket epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (epoll.fd() < 0) throw Error(Errc::system, "epoll_create1: " + tcp::error_text(errno));
  return epoll;
}

void epoll_add(const tcp::Socket& epoll, const tcp::Socket& what, std::uint32_t events, std::uint32_t number) {
  epoll_event event{};
  event.events = events;
  event.data.u32 = number;
  if (::epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, what.fd(), &event) != 0)
    throw Error(Errc::system, "epoll_ctl: " + tcp::error_text(errno));
}

}  // namespace

TcpTransport::TcpTransport(std::vector<TcpLink> links, std::size_t frame_bytes)
    : frame_bytes_(frame_bytes), everything_(make_epoll()), controls_(make_epoll()) {
  for (std::size_t rank = 0; rank < links.size(); ++rank) {
    if (links[rank].data.fd() < 0) {
      peers_.push_back(nullptr);
      continue;
    }
    auto added = std::make_unique<Peer>();
    added->data = std::move(links[rank].data);
    added->control = ControlConnection(std::move(links[rank].control));
    // Edge-triggered: the caller has tried all reads and writes before it sleeps, so only new events matter.
    epoll_add(everything_, added->data, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 0);
    epoll_add(controls_, added->control.socket(), EPOLLIN | EPOLLRDHUP, static_cast<std::uint32_t>(rank));
    peers_.push_back(std::move(added));
  }
  epoll_add(everything_, controls_, EPOLLIN | EPOLLET, 0);
}

// ---- sending ----

std::byte* TcpTransport::acquire_frame(Rank to) {
  Peer& receiver = peer(to);
  if (receiver.queued == kFrames && !write_some(receiver) && receiver.queued == kFrames) return nullptr;
  if (receiver.queued == 0 && !receiver.acquired) receiver.first = 0;  // Its memory is in the cache.
  receiver.acquired = true;
  return memory_of(next_out(receiver).frame);
}

/// Returns the memory of `frame`, which is allocated at the first use.
std::byte* TcpTransport::memory_of(AlignedBuffer& frame) const {
  if (frame == nullptr) frame = make_aligned_buffer(frame_bytes_);
  return frame.get();
}

void TcpTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  Outgoing& message = next_out(peer(to));
  message.data = message.frame.get();
  message.lent = false;
  hand_over(to, tag, bytes);
}

void TcpTransport::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  Outgoing& message = next_out(peer(to));
  message.data = data;
  message.lent = true;
  hand_over(to, tag, bytes);
}

void TcpTransport::hand_over(Rank to, std::uint64_t tag, std::size_t bytes) {
  Peer& receiver = peer(to);
  Outgoing& message = next_out(receiver);
  message.header = {tag, static_cast<std::uint32_t>(bytes), receiver.numbered};
  receiver.acquired = false;
  if (!receiver.gone.empty() || abandoned_) return discard(receiver);
  const bool as_datagram = receiver.queued == 0 && receiver.datagrams != nullptr &&
                           receiver.datagrams->send(message.header, message.data, receiver.expected);
  ++receiver.numbered;
  if (as_datagram) return retransmitter_->note();
  ++receiver.queued;
  if (receiver.writing || write_now(receiver) || write_some(receiver)) return;
  receiver.writing = true;
  writing_.push_back(&receiver);
}

/// Drops the queued messages to a peer that will not read them.
void TcpTransport::discard(Peer& to) { to.queued = to.written = 0; }

/// Writes a short message that is alone in the queue with one system call. Returns true if the whole message is
/// written.
bool TcpTransport::write_now(Peer& to) {
  const Outgoing& message = to.out[to.first];
  if (to.queued > 1 || message.header.bytes > kShort) return false;
  std::array<std::byte, sizeof(Header) + kShort> piece;
  std::memcpy(piece.data(), &message.header, sizeof(Header));
  if (message.header.bytes > 0) std::memcpy(piece.data() + sizeof(Header), message.data, message.header.bytes);
  const std::size_t bytes = sizeof(Header) + message.header.bytes;
  const ssize_t written = ::send(to.data.fd(), piece.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (written <= 0) return false;
  to.written = static_cast<std::size_t>(written);
  return retire(to);
}

/// Removes written messages from the queue. Returns true if none is left.
bool TcpTransport::retire(Peer& to) {
  while (to.queued > 0) {
    const std::size_t whole = sizeof(Header) + to.out[to.first].header.bytes;
    if (to.written < whole) return false;
    to.written -= whole;
    to.first = (to.first + 1) % kFrames;
    --to.queued;
  }
  return true;
}

/// Writes queued messages as far as the kernel takes them. Returns true if none is left.
bool TcpTransport::write_some(Peer& to) {
  while (to.queued > 0) {
    std::array<iovec, 2 * kFrames> pieces;
    std::size_t count = 0, skip = to.written;
    const auto add = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        pieces[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped, bytes - skipped};
    };
    for (std::size_t i = 0; i < to.queued; ++i) {
      const Outgoing& message = to.out[(to.first + i) % kFrames];
      add(&message.header, sizeof message.header);
      add(message.data, message.header.bytes);
    }
    msghdr call{};
    call.msg_iov = pieces.data();
    call.msg_iovlen = count;
    const ssize_t written = ::sendmsg(to.data.fd(), &call, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0) {
      if (would_block(errno)) return false;
      data_failed(to, tcp::error_text(errno));
      discard(to);
      return true;
    }
    to.written += static_cast<std::size_t>(written);
    retire(to);
  }
  return true;
}

bool TcpTransport::lent(const std::byte* data, std::size_t bytes) const noexcept {
  for (const Peer* to : writing_)
    for (std::size_t i = 0; i < to->queued; ++i) {
      const Outgoing& message = to->out[(to->first + i) % kFrames];
      if (message.lent && message.data < data + bytes && data < message.data + message.header.bytes) return true;
    }
  return false;
}

void TcpTransport::progress() {
  if (!writing_.empty())
    std::erase_if(writing_, [this](Peer* to) {
      if (!write_some(*to)) return false;
      to->writing = false;
      return true;
    });
  write_waiting_controls();
}

/// Writes queued control messages. Returns whether some are left. May be called from any thread.
bool TcpTransport::write_waiting_controls() {
  if (!controls_waiting_.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(controls_mutex_);
  controls_waiting_ = false;
  for (const auto& to : peers_)
    if (to != nullptr && to->control.write()) controls_waiting_ = true;
  return controls_waiting_;
}

void TcpTransport::flush(Deadline deadline) {
  for (;;) {
    flush_datagrams();
    progress();
    std::vector<Rank> waiting;
    for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
      Peer* const to = peers_[rank].get();
      if (to == nullptr || !to->gone.empty() || to->control.ended()) continue;
      const std::lock_guard lock(controls_mutex_);
      if (to->queued > 0 || to->control.queued_bytes() > 0) waiting.push_back(static_cast<Rank>(rank));
    }
    if (waiting.empty()) return;
    if (deadline.passed())
      throw Error(Errc::timeout, fmt::format("transport tcp: {} has not taken its messages", ranks_text(waiting)),
                  kNoRank, waiting.front());
    look_at_controls();  // A peer that has left reads no more messages.
    ::poll(nullptr, 0, 1);
  }
}

// ---- receiving ----

/// Reads up to `bytes` bytes. Returns 0 if there are none or the connection has ended.
std::size_t TcpTransport::read_some(Peer& from, std::byte* to, std::size_t bytes) {
  const ssize_t got = ::recv(from.data.fd(), to, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && would_block(errno)) return 0;
  data_failed(from, got == 0 ? "it closed the connection" : tcp::error_text(errno));
  from.stream_ended = true;
  return 0;
}

bool TcpTransport::read_header(Peer& from) {
  while (from.ahead_last - from.ahead_first < sizeof(Header)) {
    if (from.ahead_first > 0) {
      std::memmove(from.ahead.data(), from.ahead.data() + from.ahead_first, from.ahead_last - from.ahead_first);
      from.ahead_last -= from.ahead_first;
      from.ahead_first = 0;
    }
    const std::size_t got = read_some(from, from.ahead.data() + from.ahead_last, kReadAhead - from.ahead_last);
    if (got == 0) return false;
    from.ahead_last += got;
  }
  std::memcpy(&from.header, from.ahead.data() + from.ahead_first, sizeof(Header));
  from.ahead_first += sizeof(Header);
  if (from.header.bytes > frame_bytes_) {
    data_failed(from, fmt::format("it sent a message of {} bytes; the most is {}", from.header.bytes, frame_bytes_));
    from.stream_ended = true;  // The bytes that follow cannot be split into messages.
    return false;
  }
  from.known = true;
  from.target = nullptr;
  from.arrived = 0;
  return true;
}

const Message* TcpTransport::receive_into(Rank rank, std::byte* place, std::size_t bytes) {
  Peer& from = peer(rank);
  if (from.open) return &from.message;
  if (abandoned_ || from.starved) return nullptr;
  // A lost datagram arrives on the control connection.
  if (from.by_datagram && ++from.looks % kLooksPerControl == 0) look_at_controls();
  const bool nothing_comes = from.control.ended() || !from.by_datagram;
  const auto by_datagram = [&] { return from.by_datagram && take_datagram(rank, place, bytes); };
  const auto by_stream = [&] { return take_from_stream(from, place, bytes); };
  // Tries the way of the last message first, because each attempt costs a system call.
  if (from.last_by_datagram ? by_datagram() || by_stream() : by_stream() || by_datagram()) {
    from.open = true;
    ++from.expected;
    return &from.message;
  }
  from.starved = from.stream_ended && nothing_comes;
  return nullptr;
}

bool TcpTransport::take_from_stream(Peer& from, std::byte* place, std::size_t bytes) {
  if (from.stream_ended || (!from.known && !read_header(from)) || from.header.number != from.expected) return false;
  const std::size_t whole = from.header.bytes;
  if (from.target == nullptr) {
    from.target = place != nullptr && bytes == whole ? place : memory_of(from.frame);
    from.arrived = std::min(whole, from.ahead_last - from.ahead_first);
    if (from.arrived > 0) std::memcpy(from.target, from.ahead.data() + from.ahead_first, from.arrived);
    from.ahead_first += from.arrived;
  }
  while (from.arrived < whole) {
    const std::size_t got = read_some(from, from.target + from.arrived, whole - from.arrived);
    if (got == 0) return false;
    from.arrived += got;
  }
  from.message = {from.header.tag, from.target, whole};
  from.known = from.last_by_datagram = false;
  return true;
}

bool TcpTransport::take_datagram(Rank rank, std::byte* place, std::size_t bytes) {
  Peer& from = peer(rank);
  if (from.known && from.header.number == from.expected) return false;  // It arrives on the stream.
  const auto arrived = from.datagrams->take(from.expected);
  if (!arrived) return false;
  const std::byte* data = arrived->data;
  if (place != nullptr && bytes == arrived->header.bytes && bytes > 0)
    data = static_cast<const std::byte*>(std::memcpy(place, data, bytes));
  if (arrived->retransmitted) post(rank, kAcknowledged, bytes_of(Acknowledged{from.expected + 1, arrived->lost}));
  from.message = {arrived->header.tag, data, arrived->header.bytes};
  from.last_by_datagram = true;
  return true;
}

void TcpTransport::data_failed(Peer& whose, std::string why) {
  if (!whose.gone.empty()) return;
  whose.gone = std::move(why);
  whose.data_ended = Clock::now();
}

void TcpTransport::release(Rank rank) { peer(rank).open = false; }

// ---- waiting and leaving ----

std::string TcpTransport::link(Rank to) const {
  const int fd = peers_[static_cast<std::size_t>(to)]->data.fd();
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

/// Polls the datagram sockets only here. A socket that an epoll always watches makes each message to it a fifteenth
/// more expensive for the sender, whose kernel has to look for waiters. A caller with `at_most` 0 has read the sockets
/// already.
void TcpTransport::wait_for_event(std::chrono::nanoseconds at_most) {
  polled_.assign(1, {everything_.fd(), POLLIN, 0});
  for (const auto& one : peers_)
    if (at_most.count() > 0 && one != nullptr && one->datagrams != nullptr)
      polled_.push_back({one->datagrams->socket().fd(), POLLIN, 0});
  const timespec time{static_cast<time_t>(at_most.count() / 1'000'000'000),
                      static_cast<long>(at_most.count() % 1'000'000'000)};
  int found = ::ppoll(polled_.data(), polled_.size(), &time, nullptr);
  if (found < 0 && errno == EINVAL) {  // More sockets than the limit of open files, which the program has lowered.
    polled_.resize(1);
    found = ::ppoll(polled_.data(), 1, &time, nullptr);
  }
  if (found <= 0) return;
  std::array<epoll_event, 32> events;
  ::epoll_wait(everything_.fd(), events.data(), static_cast<int>(events.size()), 0);
  // Reads the datagrams. Left in their sockets, they would end the next wait_for_event() at once.
  std::size_t polled = 1;
  for (const auto& one : peers_) {
    if (polled == polled_.size()) break;
    if (one != nullptr && one->datagrams != nullptr && polled_[polled++].revents != 0)
      one->datagrams->read_ahead(one->expected);
  }
  look_at_controls();  // A lost datagram may have arrived there.
}

void TcpTransport::abandon() noexcept {
  abandoned_ = true;
  for (Peer* to : writing_) discard(*to);
  writing_.clear();
  for (const auto& from : peers_)
    if (from != nullptr) from->target = nullptr;
  try {
    flush_datagrams();               // Messages of completed calls must still arrive.
  } catch (const std::exception&) {  // Out of memory; the retransmission thread tries again.
  }
}

/// Reads the control connections before it closes them. The kernel has all bytes that peers still have to read, but it
/// would drop them if it closed a connection with unread input.
TcpTransport::~TcpTransport() {
  retransmitter_ = nullptr;
  try {
    flush_datagrams();
  } catch (const std::exception&) {  // Out of memory.
  }
  progress();
  look_at_controls();
}

}  // namespace collectives
