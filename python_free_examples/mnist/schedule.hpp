// Schedule: the learning rate of each epoch. "0:1e-3,3:1e-4,7:1e-5" means 1e-3 from epoch 0, 1e-4 from epoch 3 and 1e-5
// from epoch 7. An epoch is one pass over all images. Here, epochs are numbered from 0.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mnist {

class Schedule {
 public:
  explicit Schedule(float constant);
  /// Parses a list like the one above, or the word "lecture", which means exactly that list. Throws
  /// std::invalid_argument with a text of one line.
  static Schedule parse(std::string_view text);

  float rate(std::size_t epoch) const;
  /// Returns the schedule as text, which parse() accepts. For a constant rate, the text is that number.
  const std::string& text() const { return text_; }

 private:
  Schedule() = default;
  // pairs of a rate and the first epoch with this rate; the first pair has epoch 0
  std::vector<std::pair<std::size_t, float>> steps_;
  std::string text_;
};

}  // namespace mnist
