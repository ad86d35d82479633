// Control connection: a TCP connection to one peer that carries only control messages. A control message is a short
// text that is sent separately from the data of calls. On the connection, the length of each text, a number of 4 bytes,
// precedes the text.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/sockets.hpp"

namespace collectives {

/// This rank's end of a control connection. One thread may read while another one writes. Two threads must not read at
/// the same time. Two threads must not write at the same time.
class ControlConnection {
 public:
  static constexpr std::size_t kMost =
      1 << 20;  ///< maximum bytes of a single message, and also of all queued messages together

  explicit ControlConnection(tcp::Socket socket = tcp::Socket()) : socket_(std::move(socket)) {}
  const tcp::Socket& socket() const { return socket_; }
  bool ended() const { return ended_; }

  /// Returns the number of queued bytes that the kernel has not taken yet.
  std::size_t queued_bytes() const { return out_.size(); }
  /// Queues one message, which consists of `kind` (tcp_control.hpp) and then `text`. If the transport sends the message
  /// for its caller, `kind` is empty.
  void queue(std::string_view kind, std::string_view text);
  /// Writes queued messages until the kernel takes no more. Returns whether unwritten bytes are left.
  bool write();

  /// Reads and stores bytes that have arrived. Stops when it has stored enough bytes for a message of maximum length.
  /// If the connection has ended, returns the reason, else an empty text.
  std::string read();
  /// Returns the next completely read message, or nothing. Ends the connection if the peer has announced a message
  /// longer than kMost.
  std::optional<std::string> take();

 private:
  tcp::Socket socket_;
  std::string in_, out_;
  std::size_t taken_ = 0;  // Bytes of in_ that take() has returned.
  bool ended_ = false;
};

}  // namespace collectives
