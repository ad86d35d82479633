// Control messages, and the peers that have failed.
#include "transport/tcp_control.hpp"

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <mutex>
#include <utility>

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
  if (kind != kAcknowledged && receiver.control.queued_bytes() + text.size() > ControlConnection::kMost) return false;
  receiver.control.queue(kind, text);
  if (receiver.control.write()) controls_waiting_ = true;
  return true;
}

void TcpTransport::read_control(Rank rank) {
  Peer& from = peer(rank);
  const auto ended = [&](std::string why) {
    ::epoll_ctl(controls_.fd(), EPOLL_CTL_DEL, from.control.socket().fd(), nullptr);
    data_failed(from, std::move(why));
  };
  const std::string why = from.control.read();
  if (!why.empty()) ended(why);
  while (auto text = from.control.take()) {
    if (text->starts_with('\0'))
      handle_datagram_control(rank, *text);
    else
      controls_in_.emplace_back(rank, *std::move(text));
  }
  if (why.empty() && from.control.ended()) ended("it sent nonsense");
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
    if (!lost->control.ended() && Clock::now() - lost->data_ended < kGoodbyePatience) continue;
    lost->reported = true;
    return std::pair(static_cast<Rank>(rank), lost->gone);
  }
  return std::nullopt;
}

}  // namespace collectives
