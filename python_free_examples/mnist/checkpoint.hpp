// A checkpoint holds everything that the next step depends on, so that a run and its continuation give the same bits.
//
//   8 bytes   "MNISTCKP"
//   4         format version: 2 where there are states of a compressor, else 1
//   4         length of the description in bytes
//   8         length of the numbers and states in bytes
//   ...       the description, in JSON: model, tensor names and shapes, optimizer, seed, batch, data, epoch, step;
//             batches of a step, 1 where it does not say; compression, none where it does not say; lengths of the
//             states
//   ...       the numbers, f32: parameters, then the optimizer's state
//   ...       the states of the compressor, rank by rank
//   4         CRC32 of everything before
//
// Numbers are little-endian, as this machine writes them. A file is complete or it is not there: it is written beside
// the old one, flushed to the disk, and renamed over it.
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

/// What must be equal in a run and its continuation, beside model and optimizer.
struct RunIdentity {
  std::uint64_t seed = 0;
  std::size_t batch = 0;  ///< images of a global batch
  std::size_t train_images = 0;
  std::uint32_t data_checksum = 0;   ///< Data::checksum()
  std::size_t accumulate = 1;        ///< batches of a step
  std::string compression = "none";  ///< Compression::text()
  bool keeps_residuals = false;      ///< the compressor has states
  bool operator==(const RunIdentity&) const = default;
};

/// Where a run stands: the next step is `step` of `epoch`, both counted from 0.
struct Position {
  std::size_t epoch = 0, step = 0;
  std::size_t total_steps = 0;  ///< since the very start
  Score score;                  ///< of the training images of this epoch so far
  std::size_t images = 0;       ///< how many those were
};

/// The file's bytes. `states` are the compressor's, of every rank.
std::string pack_checkpoint(const Model&, const Optimizer&, const RunIdentity&, const Position&,
                            const Compressor::States& states = {});

/// Writes `bytes` to `path` atomically. Throws FileError naming the file; what was there before is then still there.
void write_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Whether write_atomically() will have a chance: tries it beside `path`, where nothing but a regular file may stand.
/// Throws FileError naming the file.
void require_writable(const std::filesystem::path& path);

/// Throws FileError naming the file.
std::string read_whole(const std::filesystem::path& path);

/// Makes model and optimizer those of the checkpoint and returns where it stands. Everything is checked first, and
/// nothing is changed when it throws FileError, which names `path` and what is wrong: not a checkpoint, another format
/// version, truncated, too long, damaged, or of another model, optimizer, seed, batch, accumulate, data or compression.
/// (A run that keeps residuals may go on from one that kept none.) `take` gets the states last of all checks; the
/// std::invalid_argument that it may throw becomes a FileError.
Position unpack_checkpoint(std::string_view bytes, const std::filesystem::path& path, const RunIdentity&, Model&,
                           Optimizer&, const std::function<void(const Compressor::States&)>& take = {});

}  // namespace mnist
