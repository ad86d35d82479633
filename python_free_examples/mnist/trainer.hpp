// Synchronous data-parallel training. A step: every rank computes the gradient of its shard of the global batch,
// already divided by the images of the whole batch; the sum over the ranks is then the gradient of the batch's mean
// loss, whatever the shards' lengths; every rank makes the same update.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "buckets.hpp"
#include "checkpoint.hpp"
#include "dataset.hpp"
#include "loss.hpp"
#include "model.hpp"
#include "optimizer.hpp"
#include "report.hpp"
#include "schedule.hpp"
#include "sharding.hpp"

namespace mnist {

/// "2epochs", "500steps", or a number of epochs.
struct Cadence {
  std::size_t count = 1;
  bool steps = false;
  /// Throws std::invalid_argument in one line.
  static Cadence parse(std::string_view text);
};

struct TrainerOptions {
  std::size_t epochs = 1;
  std::size_t batch = 64;  ///< images of a global batch
  std::size_t max_steps = SIZE_MAX;
  std::uint64_t seed = 1;
  Schedule schedule = Schedule(0.1f);
  bool overlap = true;
  std::size_t bucket_bytes = 1 << 20;
  std::filesystem::path checkpoint;  ///< empty: none is written
  Cadence checkpoint_every;
};

/// Forward and backward pass over the images at `indices`, which may be none. The gradients are those of the summed
/// loss divided by `batch_images`. Says `ready(from)` as Model::backward does.
template <class Ready>
Score compute_gradients(Model& model, const Dataset& data, std::span<const std::uint32_t> indices,
                        std::size_t batch_images, std::vector<std::uint8_t>& labels, Ready&& ready) {
  if (indices.empty()) {
    std::ranges::fill(model.gradients(), 0.0f);
    return {};
  }
  const Pass& pass = model.training_pass(indices.size());
  labels.resize(indices.size());
  data.pick(indices, pass.pixels.data(), labels.data());
  model.forward(pass);
  const Score score = cross_entropy(pass.logits, labels, 1.0f / static_cast<float>(batch_images), pass.logit_gradients);
  model.backward(pass, ready);
  return score;
}

/// Scores images [shard.begin, shard.end) without training.
Score evaluate(Model& model, const Dataset& data, Shard shard);

class Trainer {
 public:
  /// All references must outlive the trainer; `report` is used on rank 0 only.
  Trainer(collectives::Communicator& comm, const Data& data, const TrainerOptions& options, Model& model,
          Optimizer& optimizer, Report& report);

  /// Continues the run in `file`, which rank 0 reads. Throws FileError on rank 0, FailedElsewhere on the others.
  void resume(const std::filesystem::path& file);
  /// Trains to the last epoch. Throws collectives::Error; ReplicaError when the ranks' weights differ after an epoch;
  /// FileError or FailedElsewhere when a checkpoint cannot be written.
  void run();

  const Position& position() const { return at_; }

 private:
  void train_step(std::span<const std::uint32_t> order);
  void finish_epoch(double seconds, std::size_t first_step, std::uint64_t bytes_before);
  void save_checkpoint();

  collectives::Communicator& comm_;
  const Data& data_;
  const TrainerOptions& options_;
  Model& model_;
  Optimizer& optimizer_;
  Report& report_;
  GradientReducer reducer_;
  const RunIdentity identity_;
  const std::size_t steps_;  // of an epoch

  Position at_;                          // score and images: of this rank
  std::vector<double> loss_of_step_;     // of this epoch and rank, not averaged
  std::vector<std::uint8_t> labels_;     // of the batch at hand
  std::optional<std::size_t> saved_at_;  // total steps at the last checkpoint
};

}  // namespace mnist
