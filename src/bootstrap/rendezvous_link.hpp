// What goes over a connection of the rendezvous: frames, each a kind, a length and so many bytes.
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

/// The first word of a frame. A connection opens with `hello`, whose value nothing else is likely to send.
enum class Kind : std::uint64_t {
  hello = 0x31304c4c4f43c3a9,  // from the others: Hello
  seen = 1,                    // from rank 0: the hello is good
  welcome,                     // from rank 0: everybody is here
  contribution,                // to rank 0: one rank's bytes
  contributions,               // from rank 0: for each rank a length (8 bytes) and its bytes
  give_up,                     // to rank 0: the deadline has passed; seconds waited (a double)
  failure,                     // from rank 0: Failure, then its text
};

struct Header {
  Kind kind;
  std::uint64_t bytes;  // that follow
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

/// False when `bytes` is too short.
template <class T>
bool read_from(std::string_view bytes, T& value) {
  if (bytes.size() < sizeof value) return false;
  std::memcpy(&value, bytes.data(), sizeof value);
  return true;
}

std::shared_ptr<const std::string> make_record(Kind kind, std::string_view payload = {});

/// Frames over one connection. Nothing here waits; what cannot go on now goes on at the next push() or next().
class Link {
 public:
  /// A peer that announces a frame with more than `max_payload` bytes is lost.
  Link(Socket socket, std::size_t max_payload);

  void set_max_payload(std::size_t bytes) { max_payload_ = bytes; }

  /// What the other end did, so that nothing more will come; empty while the connection is good.
  const std::string& lost() const { return lost_; }

  void post(std::shared_ptr<const std::string> record) {
    out_.push_back(std::move(record));
    push();
  }
  void post(Kind kind, std::string_view payload = {}) { post(make_record(kind, payload)); }
  bool unsent() const { return !out_.empty(); }

  /// The next frame, if it is here.
  std::optional<Record> next();

  int fd() const { return socket_.fd(); }
  pollfd interest() const { return {fd(), static_cast<short>(unsent() ? POLLIN | POLLOUT : POLLIN), 0}; }

  /// Sends what can go out now.
  void push();

 private:
  bool pull();

  Socket socket_;
  std::size_t max_payload_;
  std::string in_;  // of a frame that is not complete yet
  std::deque<std::shared_ptr<const std::string>> out_;
  std::size_t sent_ = 0;  // bytes of out_.front()
  std::string lost_;
};

}  // namespace collectives::tcp
