// Implementation of synthetic digits, images that replace MNIST digits. A glyph is the shape of a digit: a list of
// strokes in a box of width 1 and height 1. The coordinate y points down. A stroke is a list of points that are
// connected by straight segments, which also approximate arcs. To draw an image, the points are moved at random. Then
// every pixel near a segment gets ink. Nearer pixels get more.
#include "synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "random.hpp"

namespace mnist {
namespace {

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

/// Returns a part of an ellipse between the angles `from` and `to` in degrees. Angle 0 points right, and 90 points
/// down.
Stroke arc(Point center, float radius_x, float radius_y, float from, float to) {
  constexpr int kPieces = 14;
  Stroke stroke;
  for (int i = 0; i <= kPieces; ++i) {
    const float angle = (from + (to - from) * static_cast<float>(i) / kPieces) * std::numbers::pi_v<float> / 180.0f;
    stroke.push_back({center.x + radius_x * std::cos(angle), center.y + radius_y * std::sin(angle)});
  }
  return stroke;
}

Stroke operator+(Stroke first, const Stroke& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Returns the one or several glyphs of a digit.
const std::vector<Glyph>& glyphs_of(std::size_t digit) {
  static const std::array<std::vector<Glyph>, kClasses> glyphs = {{
      {{arc({.50f, .50f}, .30f, .42f, -90, 270)}},
      {{{{.50f, .06f}, {.50f, .94f}}}, {{{.34f, .24f}, {.52f, .06f}, {.52f, .94f}}}},
      {{arc({.50f, .30f}, .27f, .23f, -170, 40) + Stroke{{.22f, .93f}, {.80f, .93f}}}},
      {{arc({.46f, .29f}, .25f, .22f, -150, 90) + arc({.46f, .72f}, .29f, .22f, -90, 150)}},
      {{{{.62f, .94f}, {.62f, .06f}, {.18f, .64f}, {.84f, .64f}}},
       {{{.25f, .06f}, {.22f, .52f}, {.75f, .52f}}, {{.73f, .08f}, {.70f, .94f}}}},
      {{{{.76f, .07f}, {.32f, .07f}, {.29f, .45f}}, arc({.47f, .67f}, .28f, .26f, -130, 145)}},
      {{{{.68f, .06f}, {.42f, .28f}, {.25f, .62f}}, arc({.50f, .70f}, .26f, .23f, -180, 180)}},
      {{{{.20f, .08f}, {.80f, .08f}, {.42f, .94f}}},
       {{{.20f, .08f}, {.80f, .08f}, {.42f, .94f}}, {{.38f, .50f}, {.74f, .50f}}}},
      {{arc({.50f, .28f}, .22f, .21f, 90, 450), arc({.50f, .71f}, .27f, .22f, -90, 270)}},
      {{arc({.49f, .30f}, .25f, .23f, 0, 360), {{.74f, .30f}, {.72f, .60f}, {.60f, .94f}}}},
  }};
  return glyphs[digit];
}

float squared_distance(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const float along = length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0f, 1.0f) : 0.0f;
  const float ex = p.x - a.x - along * dx, ey = p.y - a.y - along * dy;
  return ex * ex + ey * ey;
}

/// Adds ink to the pixels whose distance from the segment is at most `radius`, in pixels. The edge of the ink fades
/// over one pixel.
void draw_segment(std::array<float, kPixels>& ink, Point a, Point b, float radius) {
  const auto pixel = [](float at) { return static_cast<int>(std::clamp(at, 0.0f, static_cast<float>(kSide - 1))); };
  const float margin = radius + 1.0f;
  for (int y = pixel(std::min(a.y, b.y) - margin); y <= pixel(std::max(a.y, b.y) + margin); ++y)
    for (int x = pixel(std::min(a.x, b.x) - margin); x <= pixel(std::max(a.x, b.x) + margin); ++x) {
      const float distance = std::sqrt(squared_distance({static_cast<float>(x), static_cast<float>(y)}, a, b));
      float& here = ink[static_cast<std::size_t>(y) * kSide + static_cast<std::size_t>(x)];
      here = std::max(here, std::clamp(radius + 0.5f - distance, 0.0f, 1.0f));
    }
}

void draw_digit(std::size_t digit, Random& random, std::uint8_t* image) {
  const std::vector<Glyph>& glyphs = glyphs_of(digit);
  const Glyph& glyph = glyphs[random.below(glyphs.size())];

  // Scales the 1 x 1 box of the glyph to about 20 x 20 pixels in the middle of the image, as in MNIST.
  const float turn = random.uniform(-0.26f, 0.26f), shear = random.uniform(-0.25f, 0.25f);
  const float width = random.uniform(13.0f, 21.0f), height = random.uniform(17.0f, 22.0f);
  const Point center = {13.5f + random.uniform(-2.0f, 2.0f), 13.5f + random.uniform(-2.0f, 2.0f)};
  const float bend = random.uniform(0.0f, 0.06f), frequency = random.uniform(3.0f, 7.0f);
  const float phase = random.uniform(0.0f, 6.28f), radius = random.uniform(0.7f, 1.7f);
  const float cosine = std::cos(turn), sine = std::sin(turn);

  std::array<float, kPixels> ink{};
  for (Stroke stroke : glyph) {
    const Point slip = {random.uniform(-0.04f, 0.04f), random.uniform(-0.04f, 0.04f)};
    for (Point& point : stroke) {
      const float x = point.x + slip.x - 0.5f + bend * std::sin(frequency * point.y + phase);
      const float y = point.y + slip.y - 0.5f + bend * std::sin(frequency * point.x + 2.0f * phase);
      const float wide = width * (x - shear * y), high = height * y;
      point = {center.x + cosine * wide - sine * high, center.y + sine * wide + cosine * high};
    }
    for (std::size_t i = 1; i < stroke.size(); ++i) draw_segment(ink, stroke[i - 1], stroke[i], radius);
  }

  const float blackness = random.uniform(0.75f, 1.0f), noise = random.uniform(0.0f, 0.12f);
  for (const float here : ink)
    *image++ = static_cast<std::uint8_t>(255.0f * std::clamp(here * blackness + noise * random.uniform(), 0.0f, 1.0f));
}

Dataset draw_set(std::size_t count, std::uint64_t seed, std::uint64_t set) {
  Dataset data;
  data.images.resize(count * kPixels);
  for (std::size_t i = 0; i < count; ++i) data.labels.push_back(static_cast<std::uint8_t>(i % kClasses));
  Random order(seed, set);
  shuffle(data.labels, order);
  for (std::size_t i = 0; i < count; ++i) {
    Random random(seed, set, i + 1);
    draw_digit(data.labels[i], random, data.images.data() + i * kPixels);
  }
  return data;
}

}  // namespace

Data draw_digits(std::size_t train, std::size_t test, std::uint64_t seed) {
  return {draw_set(train, seed, 1), draw_set(test, seed, 2),
          fmt::format("synthetic digits, drawn by this program from seed {}", seed)};
}

}  // namespace mnist
