// Implementation of data sets of images with labels. A batch is the images that are processed together. Its images are
// copied one by one. Each of the 784 bytes of an image (28 x 28 pixels) becomes a float from 0 to 1.
#include "dataset.hpp"

#include <zlib.h>

#include <algorithm>

namespace mnist {

void Dataset::truncate(std::size_t count) {
  if (count >= size()) return;
  images.resize(count * kPixels);
  labels.resize(count);
}

void Dataset::pick(std::span<const std::uint32_t> indices, float* pixels, std::uint8_t* picked) const {
  for (const std::uint32_t index : indices) {
    const std::uint8_t* image = images.data() + index * kPixels;
    pixels = std::transform(image, image + kPixels, pixels,
                            [](std::uint8_t ink) { return static_cast<float>(ink) * (1.0f / 255.0f); });
    *picked++ = labels[index];
  }
}

std::uint32_t Data::checksum() const {
  uLong sum = crc32_z(0, nullptr, 0);
  for (const auto* bytes : {&train.images, &train.labels, &test.images, &test.labels})
    sum = crc32_z(sum, bytes->data(), bytes->size());
  return static_cast<std::uint32_t>(sum);
}

}  // namespace mnist
