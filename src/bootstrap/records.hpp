// Records: the messages between rank 0 and another rank of a rendezvous over TCP (rendezvous.hpp). A record has a kind,
// a length and a payload. This file has the kinds, the payloads and the functions that read payloads.
//
// A peer may send any bytes. Each function that reads a payload returns nothing if the payload is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/world.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {

/// Kind of a record. It is the first word of the record. The first record of a connection has the kind `hello`, whose
/// value other programs are unlikely to send.
enum class Kind : std::uint64_t {
  hello = 0x31304c4c4f43c3a9,  // To rank 0: a Hello.
  seen = 1,                    // From rank 0: the hello is accepted; a random number (8 bytes).
  welcome,                     // From rank 0: all ranks have connected.
  contribution,                // To rank 0: the bytes of one rank.
  contributions,               // From rank 0: for each rank a length (8 bytes) and its bytes.
  give_up,                     // To rank 0: the sender's deadline has passed; the seconds that it waited (a double).
  failure,                     // From rank 0: code and culprit (4 bytes each), then a text.
  proof,                       // To rank 0: the random number of `seen`, which makes the sender a member.
  missing,                     // From rank 0, first to a new member: the ranks that have not arrived (4 bytes each).
  farewell,                    // The sender leaves without an error. A process that has ended sends none.
};

struct Header {
  Kind kind;
  std::uint64_t bytes;  // Length of the payload.
};

constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kMaxHello = 256;  // Maximum payload in bytes of a record from a stranger.
constexpr std::size_t kMaxContributions = std::size_t{32} << 20;   // Maximum of all contributions together, in bytes.
constexpr std::size_t kSmallContribution = std::size_t{16} << 10;  // Contribution that is always allowed, in bytes.

/// Returns the maximum contribution of each of `ranks` ranks, in bytes.
constexpr std::size_t max_contribution(std::size_t ranks) {
  return kMaxContributions / ranks > kSmallContribution ? kMaxContributions / ranks : kSmallContribution;
}

/// First record of a connection: the rank's claimed properties.
struct Hello {
  std::uint32_t version = kVersion;
  Rank rank = kNoRank;
  int size = 0;
  Job job = {};
};

/// Error that has ended the rendezvous.
struct Failure {
  Errc code;
  Rank culprit;
  std::string text;
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

std::string hello_of(const World& world);
/// Returns only the version if it is not kVersion, because other versions may have other fields.
std::optional<Hello> read_hello(std::string_view payload);

std::string failure_bytes(const Failure& failure);
std::optional<Failure> read_failure(std::string_view payload);

/// Returns the contributions of all ranks.
std::string contributions_of(const std::vector<std::string>& gathered);
std::optional<std::vector<std::string>> read_contributions(std::string_view payload, std::size_t ranks);

/// Returns the seconds of a give_up record: finite, and from 0 to 10^9.
std::optional<double> read_seconds(std::string_view payload);

/// Returns a list of at most 1024 ranks, because longer lists help no reader.
std::string ranks_bytes(const std::vector<Rank>& ranks);
/// Returns ascending ranks of a job of `size` ranks.
std::optional<std::vector<Rank>> read_ranks(std::string_view payload, int size);

}  // namespace collectives::tcp
