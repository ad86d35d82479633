// Data sets in memory: images with one byte for each pixel, and labels with one byte each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace mnist {

inline constexpr std::size_t kSide = 28;               // pixels of a row or column of an image
inline constexpr std::size_t kPixels = kSide * kSide;  // pixels of an image
inline constexpr std::size_t kClasses = 10;

/// Exception: a file cannot be used. what() is one line and names the file.
class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Dataset {
  std::vector<std::uint8_t> images;  ///< size() x 28 x 28, row by row; 0 is paper and 255 is ink
  std::vector<std::uint8_t> labels;  ///< size() labels from 0 to 9

  std::size_t size() const { return labels.size(); }
  /// Keeps at most the first `count` images.
  void truncate(std::size_t count);
  /// Writes the images at `indices` to `pixels` (indices.size() x 784, from 0 to 1) and their labels to `picked`.
  void pick(std::span<const std::uint32_t> indices, float* pixels, std::uint8_t* picked) const;
};

struct Data {
  Dataset train, test;
  std::string source;  ///< origin of the data for messages: the folder, or "synthetic digits"
  /// Returns the CRC32 of all data. It detects ranks, or runs, with different data.
  std::uint32_t checksum() const;
};

}  // namespace mnist
