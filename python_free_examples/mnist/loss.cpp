// With m the largest logit: loss = log(sum exp(x - m)) - (x[label] - m).
#include "loss.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "dataset.hpp"

namespace mnist {

Score cross_entropy(std::span<const float> logits, std::span<const std::uint8_t> labels, float scale,
                    std::span<float> gradients) {
  Score score;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const auto x = logits.subspan(i * kClasses).first<kClasses>();
    const std::size_t label = labels[i];
    const auto largest = std::max_element(x.begin(), x.end());
    std::array<float, kClasses> power;
    float sum = 0;
    for (std::size_t j = 0; j < kClasses; ++j) sum += power[j] = std::exp(x[j] - *largest);

    score.loss += static_cast<double>(std::log(sum) - (x[label] - *largest));
    score.correct += static_cast<std::size_t>(largest - x.begin()) == label;
    if (gradients.empty()) continue;
    for (std::size_t j = 0; j < kClasses; ++j)
      gradients[i * kClasses + j] = scale * (power[j] / sum - (j == label ? 1.0f : 0.0f));
  }
  return score;
}

}  // namespace mnist
