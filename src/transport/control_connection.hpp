// Control connection: a TCP connection to one peer that carries only control messages, short texts that are sent apart
// from the data. On the connection, each text comes after its length, a number of 4 bytes.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/sockets.hpp"

namespace collectives {

/// This rank's end of a control connection. One thread may read while another one writes. Two threads must not read at
/// the same time, and two must not write.
class ControlConnection {
 public:
  static constexpr std::size_t kMost = 1 << 20;  ///< maximum bytes of one message, and of all queued messages together

  explicit ControlConnection(tcp::Socket socket = tcp::Socket()) : socket_(std::move(socket)) {}
  const tcp::Socket& socket() const { return socket_; }
  bool ended() const { return ended_; }

  /// Returns the number of queued bytes that the kernel has not taken yet.
  std::size_t queued_bytes() const { return out_.size(); }
  /// Queues one message, which consists of `kind` (tcp_control.hpp) and then `text`. `kind` is empty for a text of the
  /// transport's caller.
  void queue(std::string_view kind, std::string_view text);
  /// Writes queued messages until the kernel takes no more. Returns whether unwritten bytes are left.
  bool write();

  /// Reads bytes that have arrived, until it holds those of a message of maximum length. Returns the reason if the
  /// connection has ended, else an empty text.
  std::string read();
  /// Returns the next message that has been read completely, or nothing. Ends the connection if the peer has announced
  /// a message longer than kMost.
  std::optional<std::string> take();

 private:
  tcp::Socket socket_;
  std::string in_, out_;
  std::size_t taken_ = 0;  // Bytes of in_ that take() has returned.
  bool ended_ = false;
};

}  // namespace collectives
