// Basic types of the data of an MPI call. MPI demands that all ranks pass the same sequence of basic types. Their
// derived types may arrange the data differently in memory. The library therefore compares these sequences
// (core/signature.hpp).
//
// A basic type is a kind of number and a size. MPI types of C and of Fortran for numbers of one kind and size count as
// one basic type. MPI_CHAR and MPI_SIGNED_CHAR also count as one. MPI_BYTE differs from all other types.
//
// If all numbers of a sequence have one basic type, this type and the number of bytes describe the sequence. Otherwise
// a polynomial hash describes the order of the types. To compute the hash of n repetitions of a sequence takes about
// log n multiplications.
//
// MPI allows ranks to pass MPI_PACKED together with any type. A comparison of hashes would then find a difference.
// Ranks therefore compare sequences only if no process of the job may pack data (may_pack()).
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/types.hpp"

namespace collectives::drop_in {

enum class BasicKind : std::uint8_t {
  signed_integer,
  unsigned_integer,
  floating,
  complex,
  logical,
  wide_character,
  byte,
  packed,
  other,  ///< kinds that the drop-in does not know
};

/// Returns the number that stands for a basic type. The number is never 0.
constexpr std::uint64_t basic_type(BasicKind kind, std::size_t bytes) noexcept {
  return (static_cast<std::uint64_t>(kind) + 1) << 32 | bytes;
}
constexpr BasicKind kind_of(std::uint64_t basic) noexcept { return static_cast<BasicKind>((basic >> 32) - 1); }
constexpr std::size_t bytes_of(std::uint64_t basic) noexcept { return basic & 0xffffffff; }

/// Type of the elements in a call of the library, and Call::foreign_type.
struct Elements {
  DataType type = DataType::u8;
  std::uint64_t foreign_type = 0;
  bool operator==(const Elements&) const = default;
};
/// Bit that marks a foreign type as a hash. Foreign types without it are basic types.
inline constexpr std::uint64_t kSeveralTypes = 1ULL << 63;

/// Sequence of basic types.
class TypeSequence {
 public:
  TypeSequence() = default;
  explicit TypeSequence(std::uint64_t basic) noexcept;
  void append(const TypeSequence& next) noexcept;
  TypeSequence repeated(std::size_t times) const noexcept;
  /// Returns the elements of `times` repetitions. The type is u8 if the library lacks the type.
  Elements elements(std::size_t times) const noexcept;

 private:
  static constexpr std::uint64_t kFactor = 0xd6e8feb86659fd93ULL;
  std::uint64_t hash_ = 0;
  std::uint64_t power_ = 1;  // kFactor to the power of the length
  std::uint64_t only_ = 0;   // the basic type of all numbers; 0: there is none, or there are several
  bool is_empty_ = true;
};

}  // namespace collectives::drop_in
