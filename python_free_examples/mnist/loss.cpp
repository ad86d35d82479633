// Implementation of cross_entropy(), which computes the score of several images: the sum of their losses, and the
// number of images with the right digit.
#include "loss.hpp"

#include "elements.hpp"

namespace mnist {

Score cross_entropy(std::span<const float> logits, std::span<const std::uint8_t> labels, float scale,
                    std::span<float> gradients) {
  Score score;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    float* gradient = gradients.empty() ? nullptr : gradients.data() + i * kClasses;
    const ImageScore image = score_image(logits.data() + i * kClasses, labels[i], scale, gradient);
    score.loss += static_cast<double>(image.loss);
    score.correct += image.correct;
  }
  return score;
}

}  // namespace mnist
