// Implementation of a control connection: a TCP connection to one peer that carries only short texts, not the data of
// calls. On the connection, the length of each text, a number of 4 bytes, precedes the text. This file queues texts for
// sending. It writes and reads without blocking, and splits the bytes that arrive into texts.
#include "transport/control_connection.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "transport/tcp_control.hpp"

namespace collectives {

using namespace tcp_control;

void ControlConnection::queue(std::string_view kind, std::string_view text) {
  const auto length = static_cast<std::uint32_t>(kind.size() + text.size());
  out_.append(bytes_of(length)).append(kind).append(text);
}

bool ControlConnection::write() {
  while (!out_.empty()) {
    const ssize_t written = ::send(socket_.fd(), out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && would_block(errno)) return true;
    if (written < 0) {
      out_.clear();  // This write has failed. The next read reports the error.
      return false;
    }
    out_.erase(0, static_cast<std::size_t>(written));
  }
  return false;
}

std::string ControlConnection::read() {
  in_.erase(0, std::exchange(taken_, 0));
  for (char buffer[4096]; !ended_ && in_.size() <= kMost + sizeof(std::uint32_t);) {
    const ssize_t got = ::recv(socket_.fd(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && would_block(errno)) break;
    if (got <= 0) {
      ended_ = true;
      return got == 0 ? "it closed the connection" : tcp::error_text(errno);
    }
    in_.append(buffer, static_cast<std::size_t>(got));
  }
  return {};
}

std::optional<std::string> ControlConnection::take() {
  std::uint32_t length = 0;
  const std::string_view rest = std::string_view(in_).substr(taken_);
  if (rest.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, rest.data(), sizeof length);
  if (length > kMost) {
    ended_ = true;
    return std::nullopt;
  }
  if (rest.size() < sizeof length + length) return std::nullopt;
  taken_ += sizeof length + length;
  return std::string(rest.substr(sizeof length, length));
}

}  // namespace collectives
