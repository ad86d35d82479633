// Format of sparse messages. A rank has selected k of the n elements of a vector. A sparse message holds the indices
// and values of the selected elements. The vector is divided into B blocks of 65,536 elements. The last block may be
// shorter.
//
//   bytes        content
//   4            k (u32)
//   4 B or 0     number of selected elements in each block (u32), if indices are relative to their block
//   4 k or 2 k   indices in ascending order: u32, or u16 relative to the block; the shorter form is used
//   4 k or 2 k   values (f32 or bf16), aligned to 4 bytes
//
// Numbers are little-endian, as on all machines that the library supports. The receiver knows k and n, and therefore
// the length, before the message arrives. Indices are never converted to floats, which would round them. No index
// exceeds 2^32 - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

/// Layout of one message with k of n elements.
struct SparseFormat {
  std::size_t n = 0, k = 0;
  DataType values = DataType::f32;  ///< Type of the values in the message: f32 or bf16.

  static constexpr std::size_t kHeader = 4, kBlock = 65'536;
  constexpr std::size_t blocks() const { return (n + kBlock - 1) / kBlock; }
  constexpr bool in_blocks() const { return 4 * blocks() + 2 * k < 4 * k; }
  constexpr std::size_t indices_at() const { return kHeader + (in_blocks() ? 4 * blocks() : 0); }
  constexpr std::size_t values_at() const { return (indices_at() + (in_blocks() ? 2 : 4) * k + 3) / 4 * 4; }
  constexpr std::size_t bytes() const { return values_at() + size_of(values) * k; }
};

/// List of entries, with ascending indices. An entry is the index of an element with its value.
struct Entries {
  const std::uint32_t* indices = nullptr;
  const float* values = nullptr;
  std::size_t count = 0;
};

/// Writes a message of format.bytes() bytes with format.k entries. Subtracts `first` from each index.
void write_sparse(const SparseFormat&, const Entries&, std::byte* to, std::uint32_t first = 0);

/// Reads and checks a message of format.bytes() bytes. `indices` and `values` must have space for k entries. Returns an
/// empty text if the message has k ascending indices below n. Otherwise returns a text that describes the defect.
std::string read_sparse(const SparseFormat&, const std::byte* from, std::uint32_t* indices, float* values);

/// Sum of the selected elements of several ranks.
class SparseSum {
 public:
  /// Adds the values of each element i in the order of `terms`. Divides each sum by `divisor`, and writes the quotient
  /// to sum[i]. Leaves elements without a value unchanged. Returns the number of elements with a value.
  std::size_t add(const Entries* terms, std::size_t count, float divisor, float* sum, std::size_t n);

 private:
  // The addition proceeds block by block. touched_ has one bit per element of the block, which is set once the element
  // has a value. All bits are 0 between blocks.
  std::vector<std::uint64_t> touched_;
  std::vector<std::uint32_t> touched_indices_;
  std::vector<std::size_t> next_;  // Index of the next entry of each term.
};

}  // namespace collectives
