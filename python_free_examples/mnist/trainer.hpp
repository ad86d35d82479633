// Synchronous data-parallel training. A step: every rank computes the gradient of its shard of the global batch,
// already divided by the images of the whole batch; the sum over the ranks is then the gradient of the batch's mean
// loss, whatever the shards' lengths; every rank makes the same update. Two ways to communicate less:
//
// Accumulation. A step takes several batches, one backward pass each, and sums over the ranks once. It is the step of
// one batch that is so many times as long.
//
// Local steps. In a group of H steps every rank updates its own weights with the gradient of its own shard; the group
// ends with a synchronisation, which averages over the ranks all that the next step depends on: weights, and the
// optimizer's moments. The moments belong to it because replicas must be equal in everything: then a checkpoint by one
// rank is the whole run, and a group begins alike on all. A rank divides its gradient by the images of the batch over
// the number of ranks, so that the mean over the ranks is the gradient of the batch's mean loss, whatever the shards'
// lengths: groups of one step would be synchronous training, exactly so but for rounding wherever the update is linear
// in the gradient (all but adam). Groups are counted from the beginning of the epoch, and its last one may be short.
// Whatever looks at the model, a test, a checkpoint, the end of the run, waits for the end of a group.
//
// Both together: a group of steps, each of several batches.
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

/// "2epochs", "500steps", or a number of epochs.
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
  std::size_t test_every = SIZE_MAX;     ///< steps; beside the tests after epochs
  std::optional<double> until_accuracy;  ///< ends with the first test that is as good
  std::uint64_t seed = 1;
  Schedule schedule = Schedule(0.1f);
  bool overlap = true;
  std::size_t bucket_bytes = 1 << 20;
  Compression compression = {};      ///< of gradients; of none where local_steps says that they stay with their rank
  std::filesystem::path checkpoint;  ///< empty: none is written
  Cadence checkpoint_every;
};

/// Forward and backward pass over the images at `indices`. The gradients are those of the summed loss times `weight`.
/// Says `ready(from)` as Model::backward does. Returns the pass, whose score may then be asked for; null for no images.
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
  /// All references must outlive the trainer; `report` is used on rank 0 only.
  Trainer(collectives::Communicator& comm, const Data& data, const TrainerOptions& options, Model& model,
          Optimizer& optimizer, Report& report);

  /// Continues the run in `file`, which rank 0 reads; true when what the compressor had kept was in it. Throws
  /// FileError on rank 0, FailedElsewhere on the others.
  bool resume(const std::filesystem::path& file);
  /// Trains to the last epoch, or as far as the options let it. Throws collectives::Error; ReplicaError when the ranks'
  /// weights differ after an epoch; FileError or FailedElsewhere when a checkpoint cannot be written.
  void run();

  const Position& position() const { return at_; }
  /// What the library will do with the largest bucket, in one line; empty without compression. Every rank calls it.
  std::string plan_of_compression() { return reducer_.compressor().plan(); }
  /// How the wish for an accuracy stands, on every rank; nothing without one.
  const std::optional<GoalReport>& goal() const { return goal_; }

 private:
  bool may_go_on() const { return at_.total_steps < options_.max_steps && !(goal_ && goal_->reached); }
  /// Trains to the end of the group at hand.
  void train_group(std::span<const std::uint32_t> order);
  void train_step(std::span<const std::uint32_t> order, bool last_of_group);
  /// The gradients of a step, summed over the ranks unless they stay with theirs; and the score of its images.
  Score gradients_of_step(std::span<const std::uint32_t> order);
  /// The images of a step, as positions in the epoch's order.
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
  const bool local_;  // gradients stay with their rank
  Accumulator accumulator_;
  GradientReducer reducer_;
  const RunIdentity identity_;
  const std::size_t steps_;  // of an epoch

  Position at_;                   // score and images: of this rank
  StepLog log_;                   // of this epoch and rank
  std::uint64_t bytes_sent_ = 0;  // likewise
  std::size_t tested_at_ = 0;     // the length of log_ at the last test
  double seconds_ = 0;            // of this rank's steps in this run
  std::optional<GoalReport> goal_;
  std::optional<std::size_t> saved_at_;  // total steps at the last checkpoint
};

}  // namespace mnist
