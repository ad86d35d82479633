// Chosen elements on the wire.
//
//   bytes        what
//   4            how many there are (u32)
//   4 B or none  how many are in each block of 65,536 elements (u32), where indices count inside their block
//   4 k or 2 k   indices, ascending (u32, or u16 inside their block), whichever takes less
//   4 k or 2 k   values (f32 or bf16), beginning at a multiple of 4
//
// Numbers are little-endian, as those of all machines this library runs on. k and n are known beforehand, so the length
// is, too. No index is ever a float, and none exceeds 2^32 - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// k of n elements.
struct SparseFormat {
  std::size_t n = 0, k = 0;
  DataType values = DataType::f32;  ///< or bf16

  static constexpr std::size_t kHeader = 4, kBlock = 65'536;
  constexpr std::size_t blocks() const { return (n + kBlock - 1) / kBlock; }
  constexpr bool in_blocks() const { return 4 * blocks() + 2 * k < 4 * k; }
  constexpr std::size_t indices_at() const { return kHeader + (in_blocks() ? 4 * blocks() : 0); }
  constexpr std::size_t values_at() const { return (indices_at() + (in_blocks() ? 2 : 4) * k + 3) / 4 * 4; }
  constexpr std::size_t bytes() const { return values_at() + size_of(values) * k; }
};

/// What a rank has chosen: indices, ascending, and their values.
struct Entries {
  const std::uint32_t* indices = nullptr;
  const float* values = nullptr;
  std::size_t count = 0;
};

/// Writes format.bytes() bytes: format.k entries, with indices less `first`.
void write_sparse(const SparseFormat&, const Entries&, std::byte* to, std::uint32_t first = 0);

/// Reads a message of format.bytes() bytes, whatever is in it, into room for k entries. Returns what is wrong with it,
/// in words; nothing if it is one of k ascending indices below n.
std::string read_sparse(const SparseFormat&, const std::byte* from, std::uint32_t* indices, float* values);

/// Adds up what several ranks have chosen, in their order.
class SparseSum {
 public:
  /// sum[i] = (the values for element i in the order of `terms`, added) / divisor where there are any; the others of
  /// the n elements stay. Returns for how many there are any.
  std::size_t add(const Entries* terms, std::size_t count, float divisor, float* sum, std::size_t n);

 private:
  // Of a block of elements.
  std::vector<std::uint64_t> touched_;  // a bit for each, all 0 between blocks
  std::vector<std::uint32_t> touched_indices_;
  std::vector<std::size_t> next_;  // entry of each term
};

}  // namespace collectives
