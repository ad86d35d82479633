// Helpers for tests of the top-k compressor, which sends only the k elements of a gradient with the greatest
// magnitudes.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "collectives/top_k.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives::testing {

inline std::vector<float> gradient_of(Rank rank, std::size_t count, int step) {
  std::mt19937 random(static_cast<unsigned>(rank * 1009 + step * 31 + static_cast<int>(count)));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

inline Options sparse(TopK& top_k, const char* name = "tensor") {
  return {.name = name, .compressor = &top_k, .force = true};
}

/// Returns options by which encoding seems to take so long that only forced calls send selected elements.
inline CommunicatorOptions never_worth_it() {
  TuningParameters tuning;
  tuning.coding_us_per_byte = 1000;
  CommunicatorOptions options;
  options.tuning = tuning;
  return options;
}

inline std::string error_of(Errc code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing thrown";
  return "";
}

}  // namespace collectives::testing
