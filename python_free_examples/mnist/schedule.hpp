// Schedule: the learning rate of each epoch. "0:1e-3,3:1e-4,7:1e-5" means 1e-3 from epoch 0, 1e-4 from epoch 3 and 1e-5
// from epoch 7. An epoch is one pass over the images; epochs count from 0 here.
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
  /// Parses a list as above, or "lecture", which is that list. Throws std::invalid_argument in one line.
  static Schedule parse(std::string_view text);

  float rate(std::size_t epoch) const;
  /// Returns the text that parse() accepts. For a constant it is the number.
  const std::string& text() const { return text_; }

 private:
  Schedule() = default;
  std::vector<std::pair<std::size_t, float>> steps_;  // first epoch and rate; the first pair has epoch 0
  std::string text_;
};

}  // namespace mnist
