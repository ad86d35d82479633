// Link: a TCP connection between rank 0 and another rank. The ranks use links to exchange bytes before they have a
// transport (rendezvous.hpp). A link carries records. A record has a kind, a length and a payload.
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

/// One connection, with records that wait to be sent and the record that is being received. No function blocks. Each
/// call of push() sends more bytes, and each call of next() receives more.
class Link {
 public:
  /// Takes over a connection. A peer that announces a payload of more than `max_payload` bytes counts as lost.
  Link(Socket socket, std::size_t max_payload);

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }

  /// Returns a text that states how the connection to the peer has ended. Returns an empty text while the connection is
  /// open.
  const std::string& lost() const { return lost_; }
  /// Returns whether the peer has sent bytes that are not a valid record.
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
  std::string in_;  // Received bytes of an incomplete record.
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // Number of bytes of out_.front() that have been sent.
  std::string lost_;
  bool has_noise_ = false;
};

}  // namespace collectives::tcp
