// Control channel of the TCP transport: carries control messages on one TCP connection per peer. A control message is a
// short text that is not data of a call.
//
// A text is either for the caller of the transport, or for the transport itself (tcp_control.hpp). The channel stores
// arrived texts until they are taken, in one queue for the caller and one for the transport. The channel also notes
// which connections have ended.
//
// Any thread may call post(), which sends or queues a text, and write_waiting(), which writes queued texts. Only the
// thread of the transport calls the other functions.
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
  /// Makes a channel for `ranks` ranks, which has no connections yet. Throws Error{system}.
  explicit TcpControlChannel(std::size_t ranks) : connections_(ranks), epoll_(make_epoll()) {}
  /// Takes over the connection to `peer`.
  void add(Rank peer, tcp::Socket connection);
  /// Returns the epoll, which is readable while any connection has bytes to read.
  const tcp::Socket& epoll() const { return epoll_; }

  void post(Rank to, std::string_view text) override { post(to, {}, text); }
  /// Sends or queues a message. `kind`: the kind of a message of the transport itself (tcp_control.hpp); empty for a
  /// text of the transport's caller. Returns false if the queue for the peer would exceed 1 MiB, or 2 MiB for
  /// kAcknowledged.
  bool post(Rank to, std::string_view kind, std::string_view text);
  /// Writes queued messages to all peers until the kernel takes no more. Returns whether unwritten messages are left.
  bool write_waiting() { return is_waiting_.load(std::memory_order_relaxed) && write_all(); }
  bool has_unsent(Rank to) override;

  void read() override;
  /// Returns the next stored message for the transport: its sender, and its kind with its text.
  std::optional<Text> take_own() { return next_of(own_); }
  /// Returns a peer whose connection has ended, and the reason. Returns each peer once, in the order in which the
  /// connections have ended. Returns nothing if no other connection has ended.
  std::optional<Text> take_ended() { return next_of(ended_); }
  /// Ends the connection to `peer` in both directions. The next read() notices that.
  void shut_down(Rank peer) noexcept;
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
