// Checkpoints of a training run. A checkpoint is a file with everything on which the next step depends. A run that is
// continued from a checkpoint therefore gives the same bits as an uninterrupted run. The file contains:
//
//   8 bytes   "MNISTCKP"
//   4         format version: 2 with states of a compressor, else 1
//   4         length of the description in bytes
//   8         length of the numbers and states in bytes
//   ...       the description, in JSON: model, tensor names and shapes, optimizer, seed, batch, data, epoch, step;
//             batches of a step (default 1); compression (default none); lengths of the states
//   ...       the numbers, f32: parameters, then the optimizer's state
//   ...       the states of the compressor, rank by rank
//   4         CRC32 of everything before
//
// Numbers are little-endian. The file is written under another name, flushed to the disk and then renamed. Its path
// thus never names an incomplete file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "compression.hpp"
#include "loss.hpp"
#include "model.hpp"
#include "optimizer.hpp"

namespace mnist {

/// Values that a run and its continuation must share. Model and optimizer must be equal, too.
struct RunIdentity {
  std::uint64_t seed = 0;
  std::size_t batch = 0;  ///< images of a global batch, which all ranks process together
  std::size_t train_images = 0;
  std::uint32_t data_checksum = 0;   ///< CRC32 of all images and labels
  std::size_t accumulate = 1;        ///< batches of a step
  std::string compression = "none";  ///< options of the compression, as Compression::text()
  bool keeps_residuals = false;      ///< whether the compressor keeps values that it has not sent
  bool operator==(const RunIdentity&) const = default;
};

/// Position of a run. The next step is number `step` of epoch number `epoch`. Both numbers count from 0.
struct Position {
  std::size_t epoch = 0, step = 0;
  std::size_t total_steps = 0;  ///< steps since the start of the first run
  Score score;                  ///< score of the images on which this epoch has trained so far
  std::size_t images = 0;       ///< number of these images
};

/// Returns the bytes of the file. `states` has the compressor's state of every rank.
std::string pack_checkpoint(const Model&, const Optimizer&, const RunIdentity&, const Position&,
                            const Compressor::States& states = {});

/// Writes `bytes` to `path` atomically. If that fails, the previous file stays in place, and a FileError that names the
/// file is thrown.
void write_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Checks that write_atomically() can succeed, by creating a file beside `path`. `path` may only be a regular file.
/// Throws FileError that names the file.
void require_writable(const std::filesystem::path& path);

/// Returns the bytes of a file. Throws FileError that names it.
std::string read_whole(const std::filesystem::path& path);

/// Sets model and optimizer to the state of the checkpoint and returns its position.
///
/// Checks everything first. Throws FileError without any change if the file is not a checkpoint, or if it has another
/// format version, is truncated, too long or damaged. Another model, optimizer, seed, batch, accumulate, data or
/// compression is an error as well. The error names `path` and the reason. A run that keeps residuals may continue a
/// run without residuals.
///
/// `take` receives the states after all other checks. If it throws std::invalid_argument, that becomes a FileError.
Position unpack_checkpoint(std::string_view bytes, const std::filesystem::path& path, const RunIdentity&, Model&,
                           Optimizer&, const std::function<void(const Compressor::States&)>& take = {});

}  // namespace mnist
