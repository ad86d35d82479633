// Link: a TCP connection of the rendezvous between rank 0 and another rank (rendezvous.hpp). It carries records. A
// record has a kind, a length and a payload.
#pragma once

#include <poll.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/records.hpp"
#include "bootstrap/sockets.hpp"

namespace collectives::tcp {

/// One connection with its unsent and incomplete records. No function blocks. Calls of push() continue to send, and
/// calls of next() continue to receive.
class Link {
 public:
  /// Treats a peer that announces a payload of more than `max_payload` bytes as lost.
  Link(Socket socket, std::size_t max_payload);

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }

  /// Returns how the connection has ended, as text about the peer. Returns an empty text while it is open.
  const std::string& lost() const { return lost_; }
  /// Returns whether the peer has sent bytes that are no record.
  bool has_noise() const { return has_noise_; }

  void post(std::shared_ptr<const std::string> record) {
    out_.push_back(std::move(record));
    push();
  }
  void post(Kind kind, std::string_view payload = {}) { post(make_record(kind, payload)); }
  bool unsent() const { return !out_.empty(); }

  /// Returns the next record if it has arrived completely.
  std::optional<Record> next();

  int fd() const { return socket_.fd(); }
  pollfd interest() const { return {fd(), static_cast<short>(unsent() ? POLLIN | POLLOUT : POLLIN), 0}; }

  /// Sends as many bytes as the kernel takes now.
  void push();

 private:
  bool pull();
  void refuse(std::string why) {
    lost_ = std::move(why);
    has_noise_ = true;
  }

  Socket socket_;
  std::size_t max_payload_;
  std::string in_;  // Bytes of an incomplete record.
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // Bytes of out_.front() that are sent.
  std::string lost_;
  bool has_noise_ = false;
};

}  // namespace collectives::tcp
