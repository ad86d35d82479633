// Functions that write and read sparse messages, and add the entries of several ranks.
//
// An all-reduce with top-k sends some elements of a vector. A sparse message holds one entry for each of them: the
// index of the element and its value.
#include "compression/sparse.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace collectives {
namespace {

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace

void write_sparse(const SparseFormat& format, const Entries& entries, std::byte* to, std::uint32_t first) {
  put(to, static_cast<std::uint32_t>(format.k));
  std::byte* indices = to + format.indices_at();
  if (format.in_blocks()) {
    std::size_t at = 0;
    for (std::size_t block = 0; block < format.blocks(); ++block) {
      const std::size_t begin = at;
      for (; at < format.k && (entries.indices[at] - first) / SparseFormat::kBlock == block; ++at)
        put(indices + 2 * at, static_cast<std::uint16_t>(entries.indices[at] - first));
      put(to + SparseFormat::kHeader + 4 * block, static_cast<std::uint32_t>(at - begin));
    }
    if (format.k % 2 != 0) put(indices + 2 * format.k, std::uint16_t{0});
  } else {
    for (std::size_t i = 0; i < format.k; ++i) put(indices + 4 * i, entries.indices[i] - first);
  }
  std::byte* values = to + format.values_at();
  if (format.values == DataType::f32) {
    if (format.k > 0) std::memcpy(values, entries.values, 4 * format.k);
  } else {
    for (std::size_t i = 0; i < format.k; ++i) put(values + 2 * i, bfloat16(entries.values[i]).bits);
  }
}

std::string read_sparse(const SparseFormat& format, const std::byte* from, std::uint32_t* indices, float* values) {
  const std::size_t k = get<std::uint32_t>(from);
  if (k != format.k) return fmt::format("it holds {} elements in place of {}", k, format.k);
  const std::byte* coded = from + format.indices_at();
  if (format.in_blocks()) {
    std::size_t at = 0;
    for (std::size_t block = 0; block < format.blocks(); ++block) {
      const std::size_t in_block = get<std::uint32_t>(from + SparseFormat::kHeader + 4 * block);
      if (in_block > k - at) return fmt::format("block {} holds {} elements of {} left", block, in_block, k - at);
      const auto base = static_cast<std::uint32_t>(block * SparseFormat::kBlock);
      for (const std::size_t end = at + in_block; at < end; ++at)
        indices[at] = base + get<std::uint16_t>(coded + 2 * at);
    }
    if (at != k) return fmt::format("its blocks hold {} elements in place of {}", at, k);
  } else if (k > 0) {
    std::memcpy(indices, coded, 4 * k);
  }
  for (std::size_t i = 1; i < k; ++i)
    if (indices[i] <= indices[i - 1]) return fmt::format("index {} follows {}", indices[i], indices[i - 1]);
  if (k > 0 && indices[k - 1] >= format.n) return fmt::format("index {} of {} elements", indices[k - 1], format.n);
  const std::byte* at = from + format.values_at();
  if (format.values == DataType::f32) {
    if (k > 0) std::memcpy(values, at, 4 * k);
  } else {
    for (std::size_t i = 0; i < k; ++i) {
      bfloat16 value;
      value.bits = get<std::uint16_t>(at + 2 * i);
      values[i] = static_cast<float>(value);
    }
  }
  return {};
}

std::size_t SparseSum::add(const Entries* terms, std::size_t count, float divisor, float* sum, std::size_t n) {
  // Adds block by block, so that sums are still in the cache when they are divided. Consecutive entries mostly refer to
  // different cache lines of the result. The loop therefore prefetches the cache line of the entry that comes kAhead
  // entries later.
  constexpr std::size_t kBlock = 32'768, kAhead = 24;
  touched_.resize(kBlock / 64);
  touched_indices_.resize(kBlock);
  next_.assign(count, 0);
  std::size_t all = 0;
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t end = std::min(n, begin + kBlock);
    std::size_t union_size = 0;
    for (std::size_t t = 0; t < count; ++t) {
      const auto [indices, values, k] = terms[t];
      std::size_t i = next_[t];
      for (; i < k && indices[i] < end; ++i) {
        const std::uint32_t index = indices[i];
        __builtin_prefetch(sum + indices[std::min(i + kAhead, k - 1)], 1);
        const std::uint64_t bit = std::uint64_t{1} << index % 64;
        std::uint64_t& word = touched_[index % kBlock / 64];
        // The first value of an element is stored, not added to 0, because -0 + 0 is +0.
        if ((word & bit) == 0) {
          word |= bit;
          touched_indices_[union_size++] = index;
          sum[index] = values[i];
        } else {
          sum[index] += values[i];
        }
      }
      next_[t] = i;
    }
    for (std::size_t i = 0; i < union_size; ++i) {
      touched_[touched_indices_[i] % kBlock / 64] = 0;
      if (divisor != 1) sum[touched_indices_[i]] /= divisor;
    }
    all += union_size;
  }
  return all;
}

}  // namespace collectives
