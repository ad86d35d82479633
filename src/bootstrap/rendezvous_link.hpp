// Link: a TCP connection of the rendezvous between rank 0 and another rank (rendezvous.hpp). It carries records. A
// record has a kind, a length and a payload.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "bootstrap/sockets.hpp"

namespace collectives::tcp {

/// Kind of a record, the first word of the record. The first record of a connection is `hello`. Other programs are
/// unlikely to send the value of `hello`.
enum class Kind : std::uint64_t {
  hello = 0x31304c4c4f43c3a9,  // To rank 0: a Hello.
  seen = 1,                    // From rank 0: the hello is accepted.
  welcome,                     // From rank 0: all ranks have connected.
  contribution,                // To rank 0: the bytes of one rank.
  contributions,               // From rank 0: for each rank a length (8 bytes) and its bytes.
  give_up,                     // To rank 0: the sender's deadline has passed; the seconds that it waited (a double).
  failure,                     // From rank 0: a Failure, then its text.
};

struct Header {
  Kind kind;
  std::uint64_t bytes;  // Length of the payload.
};

constexpr std::uint32_t kVersion = 1;
struct Hello {
  std::uint32_t version = kVersion;
  std::int32_t rank = 0;
  std::int32_t size = 0;
};

struct Failure {
  std::uint32_t code;
  std::int32_t culprit;
};

struct Record {
  Kind kind;
  std::string payload;
};

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// Copies a value from the start of `bytes`. Returns false if `bytes` is too short.
template <class T>
bool read_from(std::string_view bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

std::shared_ptr<const std::string> make_record(Kind kind, std::string_view payload = {});

/// One connection with its unsent and incomplete records. No function blocks. Calls of push() continue to send, and
/// calls of next() continue to receive.
class Link {
 public:
  /// Treats a peer that announces a payload of more than `max_payload` bytes as lost.
  Link(Socket socket, std::size_t max_payload);

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }

  /// Returns how the connection has ended, as text about the peer. Returns an empty text while it is open.
  const std::string& lost() const { return lost_; }

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

  Socket socket_;
  std::size_t max_payload_;
  std::string in_;  // Bytes of an incomplete record.
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // Bytes of out_.front() that are sent.
  std::string lost_;
};

}  // namespace collectives::tcp
