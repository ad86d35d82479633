// Images and labels as they are stored: one byte per pixel, one byte per label.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace mnist {

inline constexpr std::size_t kSide = 28;               // pixels
inline constexpr std::size_t kPixels = kSide * kSide;  // per image
inline constexpr std::size_t kClasses = 10;

/// A file that cannot be used, in one line that names it.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Dataset {
  std::vector<std::uint8_t> images;  ///< size() x 28 x 28, row by row, 0 is paper and 255 is ink
  std::vector<std::uint8_t> labels;  ///< size(), each 0 to 9

  std::size_t size() const { return labels.size(); }
  /// Keeps the first `count` images, when there are more.
  void truncate(std::size_t count);
  /// Writes the images at `indices` to `pixels` (indices.size() x 784, 0 to 1) and their labels to `picked`.
  void pick(std::span<const std::uint32_t> indices, float* pixels, std::uint8_t* picked) const;
};

struct Data {
  Dataset train, test;
  std::string source;  ///< for people: the folder, or that the digits are synthetic
  /// CRC32 over everything, to tell whether two ranks, or a run and its continuation, hold the same data.
  std::uint32_t checksum() const;
};

}  // namespace mnist
