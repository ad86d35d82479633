// Implementation of the training loop (trainer.hpp). In a step, the ranks exchange only gradients. Each rank stores its
// loss, counts and times until the epoch ends, or until a test or a checkpoint needs the sums over all ranks. A group
// is the steps between two averages of weights. Without local steps, a group has one step.
#include "trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "replicas.hpp"

namespace mnist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kEvaluationBatch = 64;  // images of one forward pass in a test

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double ratio(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

}  // namespace

Cadence Cadence::parse(std::string_view text) {
  Cadence cadence;
  const auto [unit, error] = std::from_chars(text.data(), text.data() + text.size(), cadence.count);
  const std::string_view rest(unit, static_cast<std::size_t>(text.data() + text.size() - unit));
  cadence.steps = rest == "steps";
  if (error != std::errc() || cadence.count == 0 || !(rest.empty() || rest == "epochs" || rest == "steps"))
    throw std::invalid_argument(fmt::format("\"{}\": expected a number of epochs, as 2 or 2epochs, or 500steps", text));
  return cadence;
}

Score evaluate(Model& model, const Dataset& data, Shard shard) {
  Score total;
  std::vector<std::uint32_t> indices;
  for (std::size_t begin = shard.begin; begin < shard.end; begin += indices.size()) {
    indices.resize(std::min(kEvaluationBatch, shard.end - begin));
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    Pass& pass = model.inference_pass(indices.size());
    data.pick(indices, pass.pixels.data(), pass.labels.data());
    model.forward(pass);
    pass.loss(0.0f);
    total += pass.score();
  }
  return total;
}

Trainer::Trainer(collectives::Communicator& comm, const Data& data, const TrainerOptions& options, Model& model,
                 Optimizer& optimizer, Report& report)
    : comm_(comm),
      data_(data),
      options_(options),
      model_(model),
      optimizer_(optimizer),
      report_(report),
      local_(options.local_steps > 1),
      accumulator_(model.device(), model.gradients()),
      reducer_(comm, model.device(), model.gradients(), model.layer_offsets(), options.bucket_bytes, options.overlap,
               options.compression),
      identity_{options.seed,
                options.batch,
                data.train.size(),
                data.checksum(),
                options.accumulate,
                options.compression.text(),
                options.compression.kind == CompressionKind::top_k},
      steps_(steps_per_epoch(data.train.size(), options.accumulate * options.batch)) {
  if (options_.until_accuracy) goal_ = GoalReport{.wanted = *options_.until_accuracy};
  require_equal(comm_, "data sets", identity_.data_checksum);
}

bool Trainer::resume(const std::filesystem::path& file) {
  std::string bytes;
  together(comm_, [&] {
    if (comm_.rank() == 0) bytes = read_whole(file);
  });
  bytes = from_rank_0(comm_, std::move(bytes));
  bool kept = false;
  together(comm_, [&] {
    at_ = unpack_checkpoint(bytes, file, identity_, model_, optimizer_, [&](const Compressor::States& states) {
      reducer_.compressor().load(states);
      kept = true;
    });
  });
  saved_at_ = at_.total_steps;
  if (comm_.rank() == 0) return kept;
  at_.score = {};  // only rank 0 keeps the score before the resume, so that sums over the ranks count it once
  at_.images = 0;
  return kept;
}

void Trainer::run() {
  const Cadence& every = options_.checkpoint_every;
  while (at_.epoch < options_.epochs && may_continue()) {
    const std::vector<std::uint32_t> order = epoch_order(data_.train.size(), options_.seed, at_.epoch);
    std::size_t before = at_.total_steps;  // number of steps before the last group
    const auto due = [&](std::size_t steps) { return at_.total_steps / steps > before / steps; };
    while (at_.step < steps_ && may_continue()) {
      before = at_.total_steps;
      train_group(order);
      if (at_.step == steps_) break;
      if (due(options_.test_every)) test();
      if (every.steps && due(every.count)) save_checkpoint();
    }
    finish_epoch();
    if (at_.step < steps_) break;  // the run ends within an epoch; a continuation starts there

    at_ = {at_.epoch + 1, 0, at_.total_steps, {}, 0};
    if (every.steps ? due(every.count) : at_.epoch % every.count == 0) save_checkpoint();
  }
  if (saved_at_ != at_.total_steps) save_checkpoint();
  if (!goal_) return;
  if (!goal_->reached) {
    goal_->total_steps = at_.total_steps;
    goal_->seconds = seconds_;
    comm_.all_reduce(std::span(&goal_->seconds, 1), collectives::ReduceOp::average);
  }
  if (comm_.rank() == 0) report_.goal(*goal_);
}

void Trainer::train_group(std::span<const std::uint32_t> order) {
  const std::size_t end = std::min((at_.step / options_.local_steps + 1) * options_.local_steps, steps_);
  while (at_.step < end) {
    train_step(order, at_.step + 1 == end);
    if (comm_.rank() == 0) report_.progress(at_.epoch + 1, at_.step, steps_);
  }
}

void Trainer::train_step(std::span<const std::uint32_t> order, bool last_of_group) {
  const auto start = Clock::now();
  const std::uint64_t bytes_before = comm_.bytes_sent();
  const Score score = gradients_of_step(order);
  optimizer_.apply(model_.parameters(), model_.gradients(), options_.schedule.rate(at_.epoch));
  if (local_ && last_of_group) {
    reducer_.average(model_.parameters());
    reducer_.average(optimizer_.state());
  }
  const double seconds = seconds_since(start);

  log_.add(score.loss, seconds, reducer_.take_times());
  bytes_sent_ += comm_.bytes_sent() - bytes_before;
  if (!local_) reducer_.compressor().count_step();
  seconds_ += seconds;
  at_.score += score;
  ++at_.step;
  ++at_.total_steps;
}

Score Trainer::gradients_of_step(std::span<const std::uint32_t> order) {
  const Shard images = images_of(at_.step);
  const float weight = static_cast<float>(local_ ? comm_.size() : 1) / static_cast<float>(images.size());
  const std::size_t first = at_.step * options_.accumulate;
  const std::size_t last = first + steps_per_epoch(images.size(), options_.batch) - 1;
  Score sum;
  for (std::size_t batch = first; batch <= last; ++batch) {
    const Shard mine = shard_of(batch_of(batch, options_.batch, order.size()), comm_.rank(), comm_.size());
    const auto ready = [&](std::size_t from) {
      if (batch < last) return;
      accumulator_.release(from);
      if (!local_) reducer_.ready(from);
    };
    Pass* const pass = compute_gradients(model_, data_.train, order.subspan(mine.begin, mine.size()), weight, ready);
    if (batch < last) {
      accumulator_.keep();
    } else {
      // adds the gradients of earlier batches, also on a rank without images in the last batch
      accumulator_.release(0);
      if (!local_) reducer_.finish();
    }
    // reading the score waits for a GPU, so all other work of the CPU comes first
    if (pass != nullptr) sum += pass->score();
    at_.images += mine.size();
  }
  return sum;
}

Shard Trainer::images_of(std::size_t step) const {
  return batch_of(step, options_.accumulate * options_.batch, data_.train.size());
}

void Trainer::test() {
  const Score score = evaluate(model_, data_.test, my_part(data_.test));
  std::array<double, 2> sums = {static_cast<double>(score.correct), seconds_};
  comm_.all_reduce(sums);
  TestReport report;
  report.epoch = at_.epoch + 1;
  report.step = at_.step;
  report.total_steps = at_.total_steps;
  report.seconds = sums[1] / comm_.size();
  report.test_accuracy = ratio(sums[0], static_cast<double>(data_.test.size()));
  report.times = log_.times(comm_, tested_at_);
  tested_at_ = log_.steps();
  if (comm_.rank() == 0) report_.test(report);
  pursue_goal(report.test_accuracy, report.seconds);
}

void Trainer::finish_epoch() {
  require_equal(comm_, fmt::format("weights after epoch {}", at_.epoch + 1),
                hash_of(model_.device().on_host(model_.parameters())));

  const Score train = evaluate(model_, data_.train, my_part(data_.train));
  const Score test = evaluate(model_, data_.test, my_part(data_.test));
  std::array<double, 7> sums = {at_.score.loss,
                                static_cast<double>(at_.score.correct),
                                static_cast<double>(at_.images),
                                static_cast<double>(train.correct),
                                static_cast<double>(test.correct),
                                seconds_,
                                static_cast<double>(bytes_sent_)};
  comm_.all_reduce(sums);
  const StepTimes times = log_.times(comm_);
  std::optional<CompressionReport> compression = reducer_.compressor().take_report();
  std::vector<double> loss_of_step = log_.losses(comm_);
  const double test_accuracy = ratio(sums[4], static_cast<double>(data_.test.size()));
  const double seconds = sums[5] / comm_.size();

  const std::size_t steps = log_.steps();
  if (comm_.rank() == 0) {
    std::size_t images_now = 0;  // images of this run; `sums` also counts those before a resume
    for (std::size_t i = 0; i < steps; ++i) {
      const std::size_t images = images_of(at_.step - steps + i).size();
      loss_of_step[i] /= static_cast<double>(images);
      images_now += images;
    }
    report_.losses(at_.total_steps - steps, loss_of_step);

    const double step_ms = times.compute_ms + times.exposed_ms;
    EpochReport report;
    report.epoch = at_.epoch + 1;
    report.steps = steps;
    report.total_steps = at_.total_steps;
    report.seconds = seconds;
    report.learning_rate = options_.schedule.rate(at_.epoch);
    report.loss = ratio(sums[0], sums[2]);
    report.running_train_accuracy = ratio(sums[1], sums[2]);
    report.train_accuracy = ratio(sums[3], static_cast<double>(data_.train.size()));
    report.test_accuracy = test_accuracy;
    report.images_per_second = ratio(static_cast<double>(images_now), 1e-3 * step_ms * static_cast<double>(steps));
    report.times = times;
    report.bytes_sent = static_cast<std::uint64_t>(sums[6]);
    report.compression = std::move(compression);
    report_.epoch(report);
  }
  log_ = {};
  bytes_sent_ = 0;
  tested_at_ = 0;
  pursue_goal(test_accuracy, seconds);
}

/// Finds out whether the test accuracy has reached the goal of the run. All ranks pass the same numbers and get the
/// same answer.
void Trainer::pursue_goal(double test_accuracy, double seconds) {
  if (!goal_ || goal_->reached) return;
  goal_->reached = test_accuracy >= goal_->wanted;
  goal_->test_accuracy = std::fmax(goal_->test_accuracy, test_accuracy);
  if (!goal_->reached) return;
  goal_->total_steps = at_.total_steps;
  goal_->seconds = seconds;
}

void Trainer::save_checkpoint() {
  if (options_.checkpoint.empty()) return;
  std::array<double, 3> sums = {at_.score.loss, static_cast<double>(at_.score.correct),
                                static_cast<double>(at_.images)};
  comm_.all_reduce(sums);
  const Compressor::States states = reducer_.compressor().save();
  together(comm_, [&] {
    if (comm_.rank() != 0) return;
    Position position = at_;
    position.score = {sums[0], static_cast<std::size_t>(sums[1])};
    position.images = static_cast<std::size_t>(sums[2]);
    write_atomically(options_.checkpoint, pack_checkpoint(model_, optimizer_, identity_, position, states));
  });
  saved_at_ = at_.total_steps;
}

}  // namespace mnist
