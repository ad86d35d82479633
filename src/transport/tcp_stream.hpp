// Stream: the TCP transport's data connection to one peer. It carries messages in both directions. A message is a
// header and its payload.
//
// Sending. The payload of a queued message lies in a frame (memory of the stream for one message) or in the caller's
// memory. The stream writes queued messages in order. One system call may write several messages.
//
// Receiving. The stream reads a header together with bytes that follow, up to 4 KiB in all. Further payload goes
// directly to the caller's memory. If the caller has passed no memory of the right length, the payload goes to a frame.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "bootstrap/sockets.hpp"
#include "collectives/transport.hpp"
#include "transport/tcp_message.hpp"

namespace collectives {

class TcpStream {
 public:
  static constexpr int kFrames = 8;  ///< number of frames for sending, and maximum of queued messages

  /// Takes over the connection. `frame_bytes`: maximum payload of a message.
  TcpStream(tcp::Socket socket, std::size_t frame_bytes) : socket_(std::move(socket)), frame_bytes_(frame_bytes) {}
  const tcp::Socket& socket() const { return socket_; }

  // Sending.

  /// Returns the frame for the next message, or null if the messages in all frames are still queued.
  std::byte* acquire_frame();
  /// Ends the acquisition of the frame that acquire_frame() has returned. Returns the address of the frame. The frame
  /// keeps its bytes until the next acquire_frame().
  const std::byte* return_frame() {
    acquired_ = false;
    return next_out().frame.get();
  }
  /// Queues a message. Requires that acquire_frame() has returned a frame for it. `lent` means that `data` lies in the
  /// caller's memory.
  void queue(const MessageHeader& header, const std::byte* data, bool lent) {
    Outgoing& message = next_out();
    message.header = header;
    message.data = data;
    message.lent = lent;
    ++queued_;
  }
  bool has_queued() const { return queued_ > 0; }
  /// Writes the queued messages after queue(), as far as the kernel takes them. Returns true if no message is left. It
  /// is faster than write_some() for a single short message.
  bool write_new() { return write_now() || write_some(); }
  /// Writes queued messages as far as the kernel takes them. Returns true if no message is left.
  bool write_some();
  /// Drops queued messages, because the peer will not read them.
  void discard() { queued_ = written_ = 0; }
  /// Returns whether a queued message lies in the caller's memory [data, data + bytes).
  bool reads_from(const std::byte* data, std::size_t bytes) const;

  // Receiving.

  /// Stores the next message in `message` and returns true, if it has arrived and has number `number`. The payload goes
  /// to `place` if it is `bytes` long. The caller must pass the same place until the message has arrived.
  bool take(std::uint32_t number, std::byte* place, std::size_t bytes, Message& message);
  /// Returns whether the header of message `number` has been read, and take() has not returned the message yet.
  bool has_begun(std::uint32_t number) const { return known_ && header_.number == number; }
  /// Returns whether the connection is closed or has failed, and all messages before that were taken.
  bool has_ended() const { return ended_; }
  /// Forgets the caller's memory for a partly read message. No message may be taken afterwards.
  void forget_place() { target_ = nullptr; }

  // Failures.

  /// Notes that the peer is lost, and the reason. Ignores later reasons.
  void fail(std::string why);
  /// Returns the reason of the loss; empty while the peer is connected.
  const std::string& failure() const { return failure_; }
  std::chrono::steady_clock::time_point failed_at() const { return failed_at_; }

 private:
  // Maximum payload, in bytes, that is copied behind its header: one plain write is cheaper than a scattered one.
  static constexpr std::size_t kShort = 512;
  static constexpr std::size_t kReadAhead = 4096;  // Bytes read together with a header.

  /// Message that the kernel has not taken completely.
  struct Outgoing {
    MessageHeader header;
    AlignedBuffer frame;
    const std::byte* data = nullptr;
    bool lent = false;
  };

  Outgoing& next_out() { return out_[(first_ + queued_) % kFrames]; }
  std::byte* memory_of(AlignedBuffer&) const;
  bool write_now();
  bool retire();
  std::size_t read_some(std::byte* to, std::size_t bytes);
  bool read_header();
  void refuse(std::string why);

  tcp::Socket socket_;
  std::size_t frame_bytes_;

  std::array<Outgoing, kFrames> out_;  // Ring of messages: `queued_` of them, from index `first_` on, are not sent yet.
  std::size_t first_ = 0, queued_ = 0;
  std::size_t written_ = 0;  // Bytes of message `first_` that are sent, including its header.
  bool acquired_ = false;    // Whether the caller has acquired the next message's frame.

  // Bytes that were read ahead, from `ahead_first_` to `ahead_last_`. Further payload is read directly to `target_`.
  std::array<std::byte, kReadAhead> ahead_;
  std::size_t ahead_first_ = 0, ahead_last_ = 0;
  bool known_ = false;  // Whether `header_` is that of the next message.
  MessageHeader header_;
  std::byte* target_ = nullptr;
  std::size_t arrived_ = 0;
  AlignedBuffer frame_;
  bool ended_ = false;

  std::string failure_;
  std::chrono::steady_clock::time_point failed_at_{};
};

}  // namespace collectives
