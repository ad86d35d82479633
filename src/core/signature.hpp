// Signature of a call: the arguments that must be equal on all ranks, in a form that ranks can compare.
//
// Each message carries a tag. Data in shared memory carry a tag, too. A tag holds 32 bits of a number and 32 bits of
// the running hash, the hash of the signatures of all calls so far. The number is usually the number of the call. In a
// subgroup of ranks, it is the number of the collective in the subgroup (see renumbered()). If a tag has the expected
// number but a different hash, the ranks have made different calls. The receiver then does not use the data. A rank
// that receives nothing in a call detects a difference in the next call, because the running hash covers all calls.
//
// When a rank enters a call, it publishes an arrival record, which contains the whole signature. Peers read the record
// in long waits, and for error texts. Price: each call takes a few additional stores for its record.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/types.hpp"

namespace collectives {

/// Name of the compression of a call. It names a codec, which converts f32 values to fewer bytes, or top-k with its k.
/// The structure holds the first 16 characters of the name, and a hash of the whole name.
struct WireName {
  char text[16] = {};  ///< padded with zeros
  std::uint64_t hash = 0;
  WireName() = default;
  /// Stores the name and its hash. `detail`: additional number in the hash, such as a hash of other settings on which
  /// ranks must agree.
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
  bool has_counts = false;  ///< whether the call lists the lengths of all parts, as MPI_Allgatherv does
  Memory memory = Memory::host;
  Rank root = 0;
  std::uint64_t count = 0;  ///< elements of the whole vector
  /// Bits of the factor of pre_scaled_sum, or hash of the user op. In a call that does not reduce, the value of
  /// Call::foreign_type.
  std::uint64_t op_detail = 0;
  std::uint64_t counts_hash = 0;  ///< hash of the parts' lengths, or of the lengths of the tensors of a fused group
  WireName wire = {};             ///< codec or top-k compression; all zero: none
  bool force = false;             ///< whether the call is compressed even if that is slower
  /// Whether the rank has refused the call. If so, the other fields except `collective`, `has_counts` and `split` are
  /// not set.
  bool refused = false;
  bool split = false;  ///< whether split() makes the call

  bool operator==(const Signature&) const = default;
};

/// A signature packed into 64-bit words, as an arrival record holds it.
using SignatureWords = std::array<std::uint64_t, 7>;
/// Number of words that are in use if the call is not compressed. The other words describe the compression.
inline constexpr std::size_t kCommonWords = 4;
constexpr std::size_t words_of(const SignatureWords& words) noexcept {
  return (words[1] >> 22 & 8) != 0 ? words.size() : kCommonWords;
}
SignatureWords pack(const Signature&) noexcept;
Signature unpack(const SignatureWords&) noexcept;

/// Returns a hash of all arguments on which ranks must agree.
std::uint64_t hash_of(const Signature&) noexcept;
/// Makes hash_of() return the results of `hash`; null: its own. Tests thus give two signatures one hash. Plans that a
/// communicator has stored keep their hashes.
void replace_hash_for_tests(std::uint64_t (*hash)(const Signature&) noexcept) noexcept;

/// Mixes the bits of a word by the finalizer of MurmurHash3 (Austin Appleby, public domain). Every input bit affects
/// every output bit.
constexpr std::uint64_t mix(std::uint64_t word) noexcept {
  word ^= word >> 33;
  word *= 0xff51afd7ed558ccdULL;
  word ^= word >> 33;
  word *= 0xc4ceb9fe1a85ec53ULL;
  return word ^ (word >> 33);
}

/// Hash of all calls of a rank on a communicator, up to one call. The hash of a call depends on its signature and on
/// the name of the tensor.
struct RunningHash {
  std::uint64_t before = 0;  ///< hash before the call
  std::uint64_t after = 0;   ///< hash with the call

  /// Appends a call. The factor is odd, so that different hashes stay different if the calls that follow are equal. The
  /// product depends only on earlier calls, so the processor has it early. Price: an addition and two stores per call.
  constexpr void append(std::uint64_t call) noexcept {
    before = after;
    after = after * 0xd6e8feb86659fd93ULL + call;
  }
  bool operator==(const RunningHash&) const = default;
};

/// Returns a tag: the low 32 bits of the sequence number, and the high 32 bits of the hash above them. The low half
/// repeats after 2^32 calls. In later calls, the upper bits of the number also enter the high half.
inline std::uint64_t make_tag(std::uint64_t sequence, std::uint64_t hash) noexcept {
  // Mixes the upper bits of the number, which the low half cannot hold, into the hash.
  if (const std::uint64_t wraps = sequence >> 32; wraps != 0) hash = mix(hash + wraps);
  const std::uint64_t high = (hash >> 32) | 1U;  // never 0: an all-zero word is no tag
  return high << 32 | static_cast<std::uint32_t>(sequence);
}
constexpr std::uint32_t number_of(std::uint64_t tag) noexcept { return static_cast<std::uint32_t>(tag); }
/// Returns `tag` with `number` in its low half. Used for data with numbers of its own, such as the collectives of a
/// subgroup.
constexpr std::uint64_t renumbered(std::uint64_t tag, std::uint64_t number) noexcept {
  return (tag >> 32 << 32) | static_cast<std::uint32_t>(number);
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0) noexcept;

}  // namespace collectives
