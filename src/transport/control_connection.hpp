// A connection for control messages: short texts, each behind its length in 4 bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/sockets.hpp"

namespace collectives {

/// This rank's end of the control connection to one peer. One thread at a time may read, and one at a time may write.
class ControlConnection {
 public:
  static constexpr std::size_t kMost = 1 << 20;  ///< Most bytes of a message, and of queued messages.

  explicit ControlConnection(tcp::Socket socket = tcp::Socket()) : socket_(std::move(socket)) {}
  const tcp::Socket& socket() const { return socket_; }
  bool ended() const { return ended_; }

  /// Returns the number of bytes that the kernel has not taken.
  std::size_t queued_bytes() const { return out_.size(); }
  /// Queues a message: `kind` and `text`.
  void queue(std::string_view kind, std::string_view text);
  /// Writes queued messages until the kernel takes no more. Returns whether some are left.
  bool write();

  /// Reads all bytes that have arrived. Returns why the connection has ended, or an empty text if it has not.
  std::string read();
  /// Returns the next message that has been read, or nothing. Ends the connection if the peer sent an impossible
  /// length.
  std::optional<std::string> take();

 private:
  tcp::Socket socket_;
  std::string in_, out_;
  bool ended_ = false;
};

}  // namespace collectives
