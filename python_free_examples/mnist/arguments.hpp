// Command line of mnist_trainer, the example program that trains a model on the MNIST digits.
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
  std::string device = "cpu";  ///< device that computes; one of kDeviceNames
  OptimizerKind optimizer = OptimizerKind::adam;
  TrainerOptions trainer;
  std::filesystem::path data;                                  ///< folder of the MNIST files; empty: synthetic digits
  std::size_t train_limit = SIZE_MAX, test_limit = SIZE_MAX;   ///< maximum numbers of images for training and test
  std::size_t synthetic_train = 12000, synthetic_test = 2000;  ///< numbers of synthetic images
  std::filesystem::path resume;                                ///< checkpoint from which to continue; empty: a new run
  std::string backend;                                         ///< backend of the library; empty: its default
  bool deterministic = false;
  ReportFiles files;
  bool quiet = false;
  bool profile_step = false;
};

/// Exception that ends the program, with the text to print and the exit code. The text of --help goes to stdout with
/// code 0. An error goes to stderr, in one line, with code 2.
struct EarlyExit : std::runtime_error {
  EarlyExit(const std::string& text, int code_) : std::runtime_error(text), code(code_) {}
  int code;
};

/// Returns the text `mine` of every rank. All ranks must call this function.
std::vector<std::string> texts_of_ranks(collectives::Bootstrap&, const std::string& mine);

/// Runs `action` on every rank. All ranks must call this function. If `action` throws EarlyExit on some ranks, every
/// rank throws the exception of the lowest of them.
void agree(collectives::Bootstrap&, const std::function<void()>& action);

/// Parses the command line. Throws EarlyExit.
Arguments parse_arguments(int argc, const char* const* argv);

/// Collective. Parses the command line of every rank. If a rank cannot parse its line, or if values differ that must be
/// equal, every rank throws EarlyExit with the same text.
Arguments parse_arguments(collectives::Bootstrap&, int argc, const char* const* argv);

}  // namespace mnist
