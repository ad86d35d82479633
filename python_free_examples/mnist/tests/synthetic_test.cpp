// Tests of synthetic digits, images that replace MNIST digits. They check that all ranks get equal images, that all
// images differ, and that a model can learn them.
#include "synthetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

namespace mnist {
namespace {

std::vector<std::uint8_t> image(const Dataset& data, std::size_t index) {
  const auto begin = data.images.begin() + static_cast<std::ptrdiff_t>(index * kPixels);
  return {begin, begin + kPixels};
}

TEST(Synthetic, TheSameSeedDrawsTheSameDigits) {
  EXPECT_EQ(draw_digits(50, 20, 3).checksum(), draw_digits(50, 20, 3).checksum());
}

TEST(Synthetic, AnotherSeedDrawsOthers) {
  EXPECT_NE(draw_digits(50, 20, 3).checksum(), draw_digits(50, 20, 4).checksum());
}

TEST(Synthetic, ADigitDependsOnItsLabelAndPlaceOnly) {
  const Data few = draw_digits(10, 10, 3), many = draw_digits(300, 10, 3);
  for (std::size_t i = 0; i < few.train.size(); ++i)
    if (few.train.labels[i] == many.train.labels[i]) {
      EXPECT_EQ(image(few.train, i), image(many.train, i));
    }
}

TEST(Synthetic, NoTestImageIsATrainingImage) {
  const Data data = draw_digits(300, 100, 1);
  std::set<std::string> seen;
  for (const Dataset* set : {&data.train, &data.test})
    for (std::size_t i = 0; i < set->size(); ++i) {
      const std::vector<std::uint8_t> pixels = image(*set, i);
      seen.emplace(pixels.begin(), pixels.end());
    }
  EXPECT_EQ(seen.size(), 400u);
}

TEST(Synthetic, LabelsAreBalancedAndMixed) {
  const Data data = draw_digits(205, 10, 1);
  for (std::uint8_t label = 0; label < kClasses; ++label)
    EXPECT_NEAR(static_cast<double>(std::ranges::count(data.train.labels, label)), 20.5, 0.5);
  EXPECT_FALSE(std::ranges::is_sorted(data.train.labels));
}

TEST(Synthetic, EveryDigitHasInkInTheMiddleAndPaperAtTheRim) {
  const Data data = draw_digits(200, 10, 1);
  for (std::size_t i = 0; i < data.train.size(); ++i) {
    const std::vector<std::uint8_t> pixels = image(data.train, i);
    EXPECT_GT(std::ranges::count_if(pixels, [](auto ink) { return ink > 128; }), 15) << i;
    EXPECT_LT(std::ranges::count_if(pixels, [](auto ink) { return ink > 128; }), 350) << i;
  }
}

TEST(Synthetic, NearestMeanImageTellsMostDigits) {
  const Data data = draw_digits(1000, 300, 1);
  std::array<std::array<double, kPixels>, kClasses> mean{};
  for (std::size_t i = 0; i < data.train.size(); ++i)
    for (std::size_t j = 0; j < kPixels; ++j)
      mean[data.train.labels[i]][j] += data.train.images[i * kPixels + j] / 100.0;
  int right = 0;
  for (std::size_t i = 0; i < data.test.size(); ++i) {
    std::array<double, kClasses> distance{};
    for (std::size_t c = 0; c < kClasses; ++c)
      for (std::size_t j = 0; j < kPixels; ++j) {
        const double difference = mean[c][j] - data.test.images[i * kPixels + j];
        distance[c] += difference * difference;
      }
    right += std::ranges::min_element(distance) - distance.begin() == data.test.labels[i];
  }
  EXPECT_GT(right, 180);  // of 300 images; random answers give about 30
}

}  // namespace
}  // namespace mnist
