// What a rank asks for, in a form that ranks can compare.
//
// Every unit of data that moves (a line, a message, the count of staged chunks) carries its call's *tag*: the sequence
// number and a hash of the signature. A tag with the right number and another hash is a mismatched call, seen before
// any of its data is used. The full signatures stand in the arrival records, for the error message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// The name of a codec, as far as it goes; what follows is in the hash.
struct WireName {
  char text[16] = {};  ///< filled up with zeros
  std::uint64_t hash = 0;
  WireName() = default;
  /// `detail`: what else ranks must agree on.
  explicit WireName(std::string_view name, std::uint64_t detail = 0) noexcept;
  std::string_view view() const noexcept;
  bool operator==(const WireName&) const = default;
};

struct Signature {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp::Kind op = ReduceOp::Kind::sum;
  std::uint8_t backend = 0;  ///< index in backend_names()
  bool deterministic = false;
  bool has_counts = false;  ///< a v-variant
  Memory memory = Memory::host;
  Rank root = 0;
  std::uint64_t count = 0;        ///< elements of the whole vector
  std::uint64_t op_detail = 0;    ///< bits of the factor, or hash of the user op's name
  std::uint64_t counts_hash = 0;  ///< of a v-variant's counts, or of the counts of a group's tensors
  WireName wire = {};             ///< what the call's messages are coded by; all zero: nothing
  bool force = false;             ///< even where that is slower

  bool operator==(const Signature&) const = default;
};

/// The words of an arrival record.
using SignatureWords = std::array<std::uint64_t, 7>;
/// So many of them say something of every call; the others stand for the wire, if there is one.
inline constexpr std::size_t kCommonWords = 4;
constexpr std::size_t words_of(const SignatureWords& words) noexcept {
  return (words[1] >> 22 & 8) != 0 ? words.size() : kCommonWords;
}
SignatureWords pack(const Signature&) noexcept;
Signature unpack(const SignatureWords&) noexcept;

/// Of all that ranks must agree on.
std::uint64_t hash_of(const Signature&) noexcept;

/// The finalizer of MurmurHash3 (Austin Appleby, public domain): every input bit reaches every output bit.
constexpr std::uint64_t mix(std::uint64_t word) noexcept {
  word ^= word >> 33;
  word *= 0xff51afd7ed558ccdULL;
  word ^= word >> 33;
  word *= 0xc4ceb9fe1a85ec53ULL;
  return word ^ (word >> 33);
}

/// Sequence number in the low half, hash of the signature in the high half. The number wraps after 2^32 calls; the hash
/// changes then, so that no stale tag is taken for a new one.
inline std::uint64_t make_tag(std::uint64_t sequence, std::uint64_t hash) noexcept {
  // What the low half has no room for changes the high one.
  if (const std::uint64_t wraps = sequence >> 32; wraps != 0) hash = mix(hash + wraps);
  const std::uint64_t high = (hash >> 32) | 1U;  // never 0: an all-zero word is no tag
  return high << 32 | static_cast<std::uint32_t>(sequence);
}
inline std::uint64_t make_tag(std::uint64_t sequence, const Signature& signature) noexcept {
  return make_tag(sequence, hash_of(signature));
}
constexpr std::uint32_t number_of(std::uint64_t tag) noexcept { return static_cast<std::uint32_t>(tag); }
/// The same hash under another number: for units that are counted otherwise than calls.
constexpr std::uint64_t renumbered(std::uint64_t tag, std::uint64_t number) noexcept {
  return (tag >> 32 << 32) | static_cast<std::uint32_t>(number);
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0) noexcept;

/// Who passed what, for an error: "rank 3 passed 4096 x bf16, ranks 0-2 passed 4095 x bf16". Names only what differs.
struct Arrived {
  Rank rank;
  Signature signature;
};
std::string describe_mismatch(const std::vector<Arrived>&);

}  // namespace collectives
