// Implementation of the stream, the TCP connection for data to one peer. The stream queues messages to the peer, and
// writes them without blocking. It also reads messages that arrive. A frame is the stream's memory for one message.
#include "transport/tcp_stream.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp_control.hpp"

namespace collectives {

using tcp_control::would_block;

/// Returns the memory of `frame`. Allocates it at the first use.
std::byte* TcpStream::memory_of(AlignedBuffer& frame) const {
  if (frame == nullptr) frame = make_aligned_buffer(frame_bytes_);
  return frame.get();
}

// ---- sending ----

std::byte* TcpStream::acquire_frame() {
  if (queued_ == kFrames && !write_some() && queued_ == kFrames) return nullptr;
  if (queued_ == 0 && !acquired_) first_ = 0;  // Starts again at frame 0, whose memory is most likely in the cache.
  acquired_ = true;
  return memory_of(next_out().frame);
}

/// Writes the queued message by one system call, if it is short and the only queued one. Returns true if the kernel has
/// taken the whole message.
bool TcpStream::write_now() {
  const Outgoing& message = out_[first_];
  if (queued_ > 1 || message.header.bytes > kShort) return false;
  std::array<std::byte, sizeof(MessageHeader) + kShort> piece;
  std::memcpy(piece.data(), &message.header, sizeof(MessageHeader));
  if (message.header.bytes > 0) std::memcpy(piece.data() + sizeof(MessageHeader), message.data, message.header.bytes);
  const std::size_t bytes = sizeof(MessageHeader) + message.header.bytes;
  const ssize_t written = ::send(socket_.fd(), piece.data(), bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (written <= 0) return false;
  written_ = static_cast<std::size_t>(written);
  return retire();
}

/// Removes messages that are written completely from the queue. Returns true if the queue is then empty.
bool TcpStream::retire() {
  while (queued_ > 0) {
    const std::size_t whole = sizeof(MessageHeader) + out_[first_].header.bytes;
    if (written_ < whole) return false;
    written_ -= whole;
    first_ = (first_ + 1) % kFrames;
    --queued_;
  }
  return true;
}

bool TcpStream::write_some() {
  while (queued_ > 0) {
    std::array<iovec, 2 * kFrames> pieces;
    std::size_t count = 0, skip = written_;
    const auto add = [&](const void* data, std::size_t bytes) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        pieces[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(data)) + skipped, bytes - skipped};
    };
    for (std::size_t i = 0; i < queued_; ++i) {
      const Outgoing& message = out_[(first_ + i) % kFrames];
      add(&message.header, sizeof message.header);
      add(message.data, message.header.bytes);
    }
    msghdr call{};
    call.msg_iov = pieces.data();
    call.msg_iovlen = count;
    const ssize_t written = ::sendmsg(socket_.fd(), &call, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0) {
      if (would_block(errno)) return false;
      fail(tcp::error_text(errno));
      discard();
      return true;
    }
    written_ += static_cast<std::size_t>(written);
    retire();
  }
  return true;
}

bool TcpStream::reads_from(const std::byte* data, std::size_t bytes) const {
  for (std::size_t i = 0; i < queued_; ++i) {
    const Outgoing& message = out_[(first_ + i) % kFrames];
    if (message.lent && message.data < data + bytes && data < message.data + message.header.bytes) return true;
  }
  return false;
}

// ---- receiving ----

/// Reads up to `bytes` bytes, and returns the number of read bytes. Returns 0 if no bytes have arrived or the
/// connection has ended.
std::size_t TcpStream::read_some(std::byte* to, std::size_t bytes) {
  const ssize_t got = ::recv(socket_.fd(), to, bytes, MSG_DONTWAIT);
  if (got > 0) return static_cast<std::size_t>(got);
  if (got < 0 && would_block(errno)) return 0;
  fail(got == 0 ? "it closed the connection" : tcp::error_text(errno));
  ended_ = true;
  return 0;
}

bool TcpStream::read_header() {
  while (ahead_last_ - ahead_first_ < sizeof(MessageHeader)) {
    if (ahead_first_ > 0) {
      std::memmove(ahead_.data(), ahead_.data() + ahead_first_, ahead_last_ - ahead_first_);
      ahead_last_ -= ahead_first_;
      ahead_first_ = 0;
    }
    const std::size_t got = read_some(ahead_.data() + ahead_last_, kReadAhead - ahead_last_);
    if (got == 0) return false;
    ahead_last_ += got;
  }
  std::memcpy(&header_, ahead_.data() + ahead_first_, sizeof(MessageHeader));
  ahead_first_ += sizeof(MessageHeader);
  if (header_.bytes > frame_bytes_) {
    refuse(fmt::format("it sent a message of {} bytes; the most is {}", header_.bytes, frame_bytes_));
    return false;
  }
  known_ = true;
  target_ = nullptr;
  arrived_ = 0;
  return true;
}

bool TcpStream::take(std::uint32_t number, std::byte* place, std::size_t bytes, Message& message) {
  if (ended_ || (!known_ && !read_header())) return false;
  if (header_.number != number) {
    if (is_before(header_.number, number)) refuse("it sent a message again, or one that is out of order");
    return false;
  }
  const std::size_t whole = header_.bytes;
  if (target_ == nullptr) {
    target_ = place != nullptr && bytes == whole ? place : memory_of(frame_);
    arrived_ = std::min(whole, ahead_last_ - ahead_first_);
    if (arrived_ > 0) std::memcpy(target_, ahead_.data() + ahead_first_, arrived_);
    ahead_first_ += arrived_;
  }
  while (arrived_ < whole) {
    const std::size_t got = read_some(target_ + arrived_, whole - arrived_);
    if (got == 0) return false;
    arrived_ += got;
  }
  message = {header_.tag, target_, whole};
  known_ = false;
  return true;
}

/// Ends the stream because the peer has sent bytes that are no message. Later bytes cannot be split into messages.
void TcpStream::refuse(std::string why) {
  fail(std::move(why));
  ended_ = true;
}

void TcpStream::fail(std::string why) {
  if (!failure_.empty()) return;
  failure_ = std::move(why);
  failed_at_ = std::chrono::steady_clock::now();
}

}  // namespace collectives
