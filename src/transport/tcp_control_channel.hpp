// Control channel of the TCP transport: one connection for control messages to each peer.
//
// A text either belongs to the caller of the transport, or to the transport itself (tcp_control.hpp). The channel
// stores the two kinds apart, and also the connections that have ended.
//
// Any thread may post texts and write waiting ones. Only the thread of the transport calls the other functions.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/sockets.hpp"
#include "collectives/types.hpp"
#include "transport/control_channel.hpp"
#include "transport/control_connection.hpp"
#include "transport/epoll.hpp"

namespace collectives {

class TcpControlChannel final : public ControlChannel {
 public:
  /// Makes a channel between `ranks` ranks that has no connections yet. Throws Error{system}.
  explicit TcpControlChannel(std::size_t ranks) : connections_(ranks), epoll_(make_epoll()) {}
  /// Takes over the connection to `peer`.
  void add(Rank peer, tcp::Socket connection);
  /// Returns the epoll that is readable if any connection is.
  const tcp::Socket& epoll() const { return epoll_; }

  void post(Rank to, std::string_view text) override { post(to, {}, text); }
  /// Sends or queues a message of the transport. Returns false if more than 1 MiB is queued for the peer already.
  bool post(Rank to, std::string_view kind, std::string_view text);
  /// Writes queued messages. Returns whether some are left.
  bool write_waiting() { return is_waiting_.load(std::memory_order_relaxed) && write_all(); }
  bool has_unsent(Rank to) override;

  void read() override;
  /// Returns the next message of the transport that has been read: its sender, and its kind with its text.
  std::optional<Text> take_own() { return next_of(own_); }
  /// Returns the next connection that has ended, and the reason.
  std::optional<Text> take_ended() { return next_of(ended_); }
  bool has_ended(Rank peer) const { return connections_[static_cast<std::size_t>(peer)]->ended(); }

 private:
  ControlConnection& connection(Rank peer) { return *connections_[static_cast<std::size_t>(peer)]; }
  bool write_all();
  void read_from(Rank);
  static std::optional<Text> next_of(std::deque<Text>& texts);

  std::vector<std::unique_ptr<ControlConnection>> connections_;  // Null for ranks of the same host.
  tcp::Socket epoll_;
  std::deque<Text> own_, ended_;
  std::mutex mutex_;  // Guards the writes of all connections.
  std::atomic<bool> is_waiting_ = false;
};

}  // namespace collectives
