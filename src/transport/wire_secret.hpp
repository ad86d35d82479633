// Wire secret: the key by which the ranks of a job prove to one another that they belong to it.
//
// Rank 0 draws a token of 128 random bits. All other ranks receive the token through the bootstrap. Each rank makes the
// key from the token. Ranks never send the token or the key over the wire, but only hashes under the key
// (sip_hash.hpp). A process that answers at a wrong address therefore learns neither the token nor the key.
//
// A hash proves that its sender knows the key. It neither encrypts data nor protects the bytes that follow it on a
// connection.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "base/sip_hash.hpp"

namespace collectives {

/// Secret of one direction of a link. Each datagram of that direction contains it.
struct DatagramToken {
  std::uint64_t first = 0, second = 0;
  /// Compares all bits, so that the time does not show where the tokens differ.
  bool operator==(const DatagramToken& other) const noexcept {
    return ((first ^ other.first) | (second ^ other.second)) == 0;
  }
};

class WireSecret {
 public:
  explicit WireSecret(std::string_view token) noexcept : key_{sip_hash({0, 0}, token), sip_hash({0, 1}, token)} {}

  /// Returns the hash of `value`, which must have no padding.
  template <class Value>
  std::uint64_t hash(const Value& value) const noexcept {
    static_assert(std::has_unique_object_representations_v<Value>);
    return sip_hash(key_, {reinterpret_cast<const char*>(&value), sizeof value});
  }
  /// Returns the token of the datagrams from rank `from` to rank `to`.
  DatagramToken datagram_token(std::int32_t from, std::int32_t to) const noexcept {
    return {hash(Direction{Purpose::first_word, from, to}), hash(Direction{Purpose::second_word, from, to})};
  }
  /// Returns the secret that rank `from` sends to rank `to`, and to no other rank.
  std::uint64_t pair_secret(std::int32_t from, std::int32_t to) const noexcept {
    return hash(Direction{Purpose::pair, from, to});
  }
  /// Returns the secret that a rank sends to any other rank after both have proven that they know the key.
  std::uint64_t job_secret() const noexcept { return hash(Direction{Purpose::job, 0, 0}); }

 private:
  enum class Purpose : std::uint64_t { first_word = 1, second_word, pair, job };
  struct Direction {
    Purpose purpose;
    std::int32_t from, to;
  };
  SipKey key_;
};

}  // namespace collectives
