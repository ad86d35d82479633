// Trainer: trains one model on several ranks. In every step, each rank processes different images, and all ranks update
// their copies of the model equally.
//
// The global batch is all images of one step. A shard is the part of the global batch that one rank processes
// (sharding.hpp). Each rank computes the gradient of its shard, divided by the number of images of the global batch.
// The sum over the ranks is then the gradient of the mean loss of the global batch, even if shards differ in length.
// Two options reduce communication, and may be combined:
//
// Accumulation. A step has several batches, with a backward pass each. The ranks sum their gradients only once per
// step. The result is that of one longer batch.
//
// Local steps. In a group of H steps, every rank updates its own weights with the gradient of its own shard. At the end
// of the group, the weights and the state (moments) of the optimizer are averaged over the ranks. After that, they are
// equal on all ranks, so a checkpoint of one rank describes the whole run.
//
// With local steps, each rank divides the gradient of its shard by the mean length of the shards. The mean over the
// ranks is then the gradient of the mean loss of the batch, for shards of any length. Groups of one step give the same
// result as training without local steps, apart from rounding, if the update is linear in the gradient. All optimizers
// but adam have linear updates.
//
// The first group begins with the epoch, and the last group of an epoch may be short. Tests, checkpoints and the end of
// the run take place only at the end of a group.
#pragma once

#include <collectives/communicator.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "accumulator.hpp"
#include "buckets.hpp"
#include "checkpoint.hpp"
#include "dataset.hpp"
#include "loss.hpp"
#include "model.hpp"
#include "optimizer.hpp"
#include "report.hpp"
#include "schedule.hpp"
#include "sharding.hpp"
#include "step_log.hpp"

namespace mnist {

/// Interval between checkpoints, as text: "2epochs", "500steps", or a number of epochs.
struct Cadence {
  std::size_t count = 1;
  bool steps = false;
  /// Throws std::invalid_argument in one line.
  static Cadence parse(std::string_view text);
};

struct TrainerOptions {
  std::size_t epochs = 1;
  std::size_t batch = 64;       ///< images of a global batch
  std::size_t accumulate = 1;   ///< batches of a step
  std::size_t local_steps = 1;  ///< steps of a group; 1: every step sums its gradients over the ranks
  std::size_t max_steps = SIZE_MAX;
  std::size_t test_every = SIZE_MAX;     ///< steps between tests, in addition to the tests after epochs
  std::optional<double> until_accuracy;  ///< accuracy of a test at which the run ends; empty: none
  std::uint64_t seed = 1;
  Schedule schedule = Schedule(0.1f);
  bool overlap = true;
  std::size_t bucket_bytes = 1 << 20;
  Compression compression = {};      ///< compression of gradients; none with local_steps, which exchange no gradients
  std::filesystem::path checkpoint;  ///< path of the checkpoint; empty: none
  Cadence checkpoint_every;
};

/// Runs forward and backward pass over the images at `indices`. The gradients are those of the summed loss times
/// `weight`. Calls `ready(from)` as Model::backward() does. Returns the pass, which gives the score, or null for no
/// images.
template <class Ready>
Pass* compute_gradients(Model& model, const Dataset& data, std::span<const std::uint32_t> indices, float weight,
                        Ready&& ready) {
  if (indices.empty()) {
    model.device().clear(model.gradients());
    return nullptr;
  }
  Pass& pass = model.training_pass(indices.size());
  data.pick(indices, pass.pixels.data(), pass.labels.data());
  model.forward(pass);
  pass.loss(weight);
  model.backward(pass, ready);
  return &pass;
}

/// Scores images [shard.begin, shard.end) without training.
Score evaluate(Model& model, const Dataset& data, Shard shard);

class Trainer {
 public:
  /// All references must outlive the trainer. Only rank 0 uses `report`.
  Trainer(collectives::Communicator& comm, const Data& data, const TrainerOptions& options, Model& model,
          Optimizer& optimizer, Report& report);

  /// Continues the run in `file`, which rank 0 reads. Returns whether it contained states of the compressor. Throws
  /// FileError on rank 0 and FailedElsewhere on the other ranks.
  bool resume(const std::filesystem::path& file);
  /// Trains to the last epoch, or until an option ends the run. Throws collectives::Error; ReplicaError if the ranks'
  /// weights differ after an epoch; FileError or FailedElsewhere if a checkpoint cannot be written.
  void run();

  const Position& position() const { return at_; }
  /// Collective. Returns the library's plan for the largest bucket in one line, or an empty text without compression.
  std::string plan_of_compression() { return reducer_.compressor().plan(); }
  /// Returns the state of the accuracy goal, equal on every rank. Returns nothing without a goal.
  const std::optional<GoalReport>& goal() const { return goal_; }

 private:
  bool may_continue() const { return at_.total_steps < options_.max_steps && !(goal_ && goal_->reached); }
  /// Trains to the end of the current group.
  void train_group(std::span<const std::uint32_t> order);
  void train_step(std::span<const std::uint32_t> order, bool last_of_group);
  /// Computes the gradients of a step, summed over the ranks unless steps are local. Returns the score of its images.
  Score gradients_of_step(std::span<const std::uint32_t> order);
  /// Returns the images of a step, as positions in the epoch's order.
  Shard images_of(std::size_t step) const;
  Shard my_part(const Dataset& set) const { return shard_of({0, set.size()}, comm_.rank(), comm_.size()); }
  void test();
  void finish_epoch();
  void pursue_goal(double test_accuracy, double seconds);
  void save_checkpoint();

  collectives::Communicator& comm_;
  const Data& data_;
  const TrainerOptions& options_;
  Model& model_;
  Optimizer& optimizer_;
  Report& report_;
  const bool local_;  // gradients stay on their rank
  Accumulator accumulator_;
  GradientReducer reducer_;
  const RunIdentity identity_;
  const std::size_t steps_;  // steps of an epoch

  Position at_;                   // score and images of this rank
  StepLog log_;                   // of this epoch and rank
  std::uint64_t bytes_sent_ = 0;  // of this epoch and rank
  std::size_t tested_at_ = 0;     // length of log_ at the last test
  double seconds_ = 0;            // of this rank's steps in this run
  std::optional<GoalReport> goal_;
  std::optional<std::size_t> saved_at_;  // total steps at the last checkpoint
};

}  // namespace mnist
