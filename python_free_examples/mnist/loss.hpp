// Loss: softmax cross-entropy, which tells how far the outputs of a model are from the right digits. The backward pass
// begins with its gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mnist {

struct Score {
  double loss = 0;          ///< sum over the images, not the mean
  std::size_t correct = 0;  ///< number of images whose label has the largest logit

  Score& operator+=(const Score& more) {
    loss += more.loss;
    correct += more.correct;
    return *this;
  }
};

/// Scores `logits` (labels.size() x 10). Writes the gradient of scale times the summed loss, scale (softmax - one-hot),
/// to `gradients` unless it is empty.
Score cross_entropy(std::span<const float> logits, std::span<const std::uint8_t> labels, float scale,
                    std::span<float> gradients);

}  // namespace mnist
