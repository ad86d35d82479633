// Implementation of check_apart(), which refuses overlapping tensors in a group. It sorts the ranges of all buffers by
// address, and visits them once. A range overlaps an earlier one if it begins before the end of the latest one. The
// visit therefore keeps only the range that ends last, once among all ranges and once among those that are written.
#include "communicator/group_overlap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"

namespace collectives {
namespace {

/// Memory of one buffer of a group.
struct TensorRange {
  std::uintptr_t begin = 0, end = 0;
  std::size_t tensor = 0;  ///< position in the group, from 0
  bool is_written = false;
};

std::string_view side_of(const TensorRange& range) { return range.is_written ? "output" : "input"; }

std::vector<TensorRange> ranges_of(std::span<const Tensor> tensors) {
  std::vector<TensorRange> ranges;
  ranges.reserve(2 * tensors.size());
  const auto add = [&](const void* data, std::size_t bytes, std::size_t tensor, bool is_written) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    if (bytes > 0) ranges.push_back({begin, begin + bytes, tensor, is_written});
  };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [input, output] = tensors[i];
    add(output.data, output.bytes(), i, true);
    if (input.data != output.data) add(input.data, input.bytes(), i, false);  // in place, the output stands for both
  }
  std::ranges::sort(ranges, {}, &TensorRange::begin);
  return ranges;
}

[[noreturn]] void refuse_overlap(const TensorRange& a, const TensorRange& b, std::size_t tensors, Rank rank) {
  const auto& [first, second] = std::minmax(a, b, [](const auto& x, const auto& y) { return x.tensor < y.tensor; });
  throw Error(Errc::invalid_argument,
              fmt::format("all_reduce: the {} of tensor {} and the {} of tensor {} overlap in a group of {} tensors: a "
                          "group writes each output once, and reads no output of another tensor",
                          side_of(first), first.tensor + 1, side_of(second), second.tensor + 1, tensors),
              rank, kNoRank, "all_reduce");
}

}  // namespace

void check_apart(std::span<const Tensor> tensors, Rank rank) {
  if (tensors.size() < 2) return;
  const TensorRange* last = nullptr;          // range that ends last
  const TensorRange* last_written = nullptr;  // range that ends last among those that are written
  const std::vector<TensorRange> ranges = ranges_of(tensors);
  for (const TensorRange& range : ranges) {
    const TensorRange* const other = range.is_written ? last : last_written;
    if (other != nullptr && range.begin < other->end) refuse_overlap(*other, range, tensors.size(), rank);
    const auto take = [&](const TensorRange*& latest) {
      if (latest == nullptr || latest->end < range.end) latest = &range;
    };
    take(last);
    if (range.is_written) take(last_written);
  }
}

}  // namespace collectives
