// Implementation of Link, a TCP connection between rank 0 and another rank. The ranks use links to exchange bytes
// before they have a transport (rendezvous.hpp). A link sends and receives records without blocking. A record has a
// kind, a length and a payload.
#include "bootstrap/rendezvous_link.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace collectives::tcp {

Link::Link(Socket socket, std::size_t max_payload) : socket_(std::move(socket)), max_payload_(max_payload) {
  set_option(socket_, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket_, SOL_SOCKET, SO_KEEPALIVE, 1);
}

std::optional<Record> Link::next() {
  push();
  if (!pull()) return std::nullopt;
  Header header{};
  read_from(in_, header);
  in_.erase(0, sizeof header);
  return Record{header.kind, std::exchange(in_, {})};
}

void Link::push() {
  while (!out_.empty()) {
    const std::string& record = *out_.front();
    const ssize_t moved = ::send(socket_.fd(), record.data() + sent_, record.size() - sent_, MSG_NOSIGNAL);
    if (moved < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // The peer has closed the connection. pull() first reads the last records of the peer, and then reports the end.
      out_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<std::size_t>(moved);
    if (sent_ == record.size()) {
      out_.pop_front();
      sent_ = 0;
    }
  }
}

/// Reads up to the end of one record. Returns true if the record is complete. Allocates memory only for bytes that have
/// arrived, because the length in a header may be wrong.
bool Link::pull() {
  char buffer[16384];
  while (lost_.empty()) {
    Header header{};
    std::size_t wanted = sizeof header;
    if (read_from(in_, header)) {
      if (header.kind != Kind::hello && (header.kind < Kind::seen || header.kind > Kind::farewell)) {
        refuse("speaks another protocol");
        return false;
      }
      if (header.bytes > max_payload_) {
        refuse(fmt::format("sent a frame of {} bytes, more than {}", header.bytes, max_payload_));
        return false;
      }
      wanted += header.bytes;
      if (in_.size() == wanted) return true;
    }
    const ssize_t moved = ::recv(socket_.fd(), buffer, std::min(sizeof buffer, wanted - in_.size()), 0);
    if (moved > 0) {
      in_.append(buffer, static_cast<std::size_t>(moved));
    } else if (moved == 0 || errno == ECONNRESET) {
      lost_ = "closed the connection";
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      lost_ = "is lost: " + error_text(errno);
    }
  }
  return false;
}

}  // namespace collectives::tcp
