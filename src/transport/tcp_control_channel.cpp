// Implementation of the control channel over TCP, which carries short texts on TCP connections of its own. Texts for
// the transport itself begin with a zero byte. The channel stores them separately from texts for the caller of the
// transport.
#include "transport/tcp_control_channel.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <utility>

#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

void TcpControlChannel::add(Rank peer, tcp::Socket connection) {
  auto& added = connections_[static_cast<std::size_t>(peer)];
  added = std::make_unique<ControlConnection>(std::move(connection));
  epoll_add(epoll_, added->socket(), EPOLLIN | EPOLLRDHUP, static_cast<std::uint32_t>(peer));
}

bool TcpControlChannel::post(Rank to, std::string_view kind, std::string_view text) {
  const std::lock_guard lock(mutex_);
  ControlConnection& receiver = connection(to);
  // The limit for acknowledgements is twice the limit for other texts, so that a queue full of other texts does not
  // stop them. A peer that reads its connection causes only a few acknowledgements at a time.
  const std::size_t most = (kind == kAcknowledged ? 2 : 1) * ControlConnection::kMost;
  if (receiver.queued_bytes() + text.size() > most) return false;
  receiver.queue(kind, text);
  if (receiver.write()) is_waiting_ = true;
  return true;
}

bool TcpControlChannel::write_all() {
  const std::lock_guard lock(mutex_);
  is_waiting_ = false;
  for (const auto& to : connections_)
    if (to != nullptr && to->write()) is_waiting_ = true;
  return is_waiting_;
}

bool TcpControlChannel::has_unsent(Rank to) {
  const std::lock_guard lock(mutex_);
  return connection(to).queued_bytes() > 0;
}

void TcpControlChannel::shut_down(Rank peer) noexcept { ::shutdown(connection(peer).socket().fd(), SHUT_RDWR); }

void TcpControlChannel::read() {
  std::array<epoll_event, 32> events;
  // This limit ends the loop if a peer never stops.
  for (std::size_t looks = 0; looks <= connections_.size(); looks += events.size()) {
    const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) read_from(static_cast<Rank>(events[static_cast<std::size_t>(i)].data.u32));
    if (count < static_cast<int>(events.size())) return;
  }
}

void TcpControlChannel::read_from(Rank rank) {
  ControlConnection& from = connection(rank);
  const auto end = [&](std::string why) {
    ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, from.socket().fd(), nullptr);
    ended_.emplace_back(rank, std::move(why));
  };
  const std::string why = from.read();
  if (!why.empty()) end(why);
  while (auto text = from.take()) {
    if (text->starts_with('\0'))
      own_.emplace_back(rank, *std::move(text));
    else
      store(rank, *std::move(text));
  }
  if (why.empty() && from.ended()) end("it sent nonsense");
}

std::optional<ControlChannel::Text> TcpControlChannel::next_of(std::deque<Text>& texts) {
  if (texts.empty()) return std::nullopt;
  Text next = std::move(texts.front());
  texts.pop_front();
  return next;
}

}  // namespace collectives
