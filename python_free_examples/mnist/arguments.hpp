// The command line of mnist_trainer.
#pragma once

#include <collectives/bootstrap.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "optimizer.hpp"
#include "report.hpp"
#include "trainer.hpp"

namespace mnist {

struct Arguments {
  std::string model = "cnn";
  std::string device = "cpu";  ///< of kDeviceNames
  OptimizerKind optimizer = OptimizerKind::adam;
  TrainerOptions trainer;
  std::filesystem::path data;                                  ///< empty: synthetic digits
  std::size_t train_limit = SIZE_MAX, test_limit = SIZE_MAX;   ///< images
  std::size_t synthetic_train = 12000, synthetic_test = 2000;  ///< images
  std::filesystem::path resume;                                ///< empty: a new run
  std::string backend;                                         ///< empty: the library's default
  bool deterministic = false;
  ReportFiles files;
  bool quiet = false;
  bool profile_step = false;
};

/// What to print instead of running, and how to end: --help on stdout with 0, a mistake on stderr, in one line, with 2.
struct Farewell : std::runtime_error {
  Farewell(const std::string& text, int code_) : std::runtime_error(text), code(code_) {}
  int code;
};

/// The text of every rank.
std::vector<std::string> texts_of_ranks(collectives::Bootstrap&, const std::string& mine);

/// Runs `action` on every rank. When it throws Farewell anywhere, every rank throws that of the lowest such rank.
void agree(collectives::Bootstrap&, const std::function<void()>& action);

/// Throws Farewell.
Arguments parse_arguments(int argc, const char* const* argv);

/// The same on every rank at once. What one rank cannot read, or what must be equal and is not, every rank throws, in
/// the same words.
Arguments parse_arguments(collectives::Bootstrap&, int argc, const char* const* argv);

}  // namespace mnist
