// Control messages, and the peers that have failed.
#include "transport/tcp_control.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "transport/tcp.hpp"

namespace collectives {

using namespace tcp_control;

namespace {

using Clock = std::chrono::steady_clock;

/// Longest time between the end of the data connection and the report of the peer as lost. A peer that leaves sends its
/// leave message on the control connection before it closes both. The data connection may still end first, by the time
/// that TCP needs to retransmit a lost packet. A process that ends without a message closes both at once.
constexpr auto kGoodbyePatience = std::chrono::seconds(3);

}  // namespace

/// Sends or queues a control message. Returns false if more than 1 MiB is queued for the peer already.
bool TcpTransport::post(Rank to, std::string_view kind, std::string_view text) {
  const std::lock_guard lock(controls_mutex_);
  Peer& receiver = peer(to);
  if (kind != kAcknowledged && receiver.control_out.size() + text.size() > kMaxControl) return false;
  const auto length = static_cast<std::uint32_t>(kind.size() + text.size());
  receiver.control_out.append(bytes_of(length)).append(kind).append(text);
  write_control(receiver);
  return true;
}

/// Writes queued control messages to one peer. Requires controls_mutex_.
void TcpTransport::write_control(Peer& to) {
  while (!to.control_out.empty()) {
    const ssize_t written =
        ::send(to.control.fd(), to.control_out.data(), to.control_out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && would_block(errno)) {
      controls_waiting_ = true;
      return;
    }
    if (written < 0) return to.control_out.clear();  // The next read reports the error.
    to.control_out.erase(0, static_cast<std::size_t>(written));
  }
}

void TcpTransport::read_control(Rank rank) {
  Peer& from = peer(rank);
  const auto ended = [&](std::string why) {
    from.control_ended = true;
    ::epoll_ctl(controls_.fd(), EPOLL_CTL_DEL, from.control.fd(), nullptr);
    data_failed(from, std::move(why));
  };
  for (char buffer[4096]; !from.control_ended;) {
    const ssize_t got = ::recv(from.control.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && would_block(errno)) break;
    if (got <= 0)
      ended(got == 0 ? "it closed the connection" : tcp::error_text(errno));
    else
      from.control_in.append(buffer, static_cast<std::size_t>(got));
  }
  std::uint32_t length = 0;
  while (from.control_in.size() >= sizeof length) {
    std::memcpy(&length, from.control_in.data(), sizeof length);
    if (length > kMaxControl) return ended("it sent nonsense");
    if (from.control_in.size() < sizeof length + length) break;
    std::string text = from.control_in.substr(sizeof length, length);
    from.control_in.erase(0, sizeof length + length);
    if (text.starts_with('\0'))
      handle_datagram_control(rank, text);
    else
      controls_in_.emplace_back(rank, std::move(text));
  }
}

void TcpTransport::look_at_controls() {
  std::array<epoll_event, 32> events;
  const int count = ::epoll_wait(controls_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) read_control(static_cast<Rank>(events[static_cast<std::size_t>(i)].data.u32));
}

std::optional<std::pair<Rank, std::string>> TcpTransport::poll_control() {
  if (controls_in_.empty()) {
    progress();
    look_at_controls();
  }
  if (controls_in_.empty()) return std::nullopt;
  auto message = std::move(controls_in_.front());
  controls_in_.pop_front();
  return message;
}

std::optional<std::pair<Rank, std::string>> TcpTransport::poll_failed_peer() {
  if (!controls_in_.empty()) return std::nullopt;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer* const lost = peers_[rank].get();
    if (lost == nullptr || lost->gone.empty() || lost->reported) continue;
    if (!lost->control_ended && Clock::now() - lost->data_ended < kGoodbyePatience) continue;
    lost->reported = true;
    return std::pair(static_cast<Rank>(rank), lost->gone);
  }
  return std::nullopt;
}

}  // namespace collectives
