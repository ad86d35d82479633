// The loop. Loss and counts stay with their rank until the epoch ends (or a checkpoint wants them), so that a step's
// only communication is its gradients.
#include "trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <numeric>
#include <stdexcept>

#include "replicas.hpp"

namespace mnist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kEvaluationBatch = 64;  // images

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
  std::vector<std::uint8_t> labels;
  for (std::size_t begin = shard.begin; begin < shard.end; begin += indices.size()) {
    indices.resize(std::min(kEvaluationBatch, shard.end - begin));
    labels.resize(indices.size());
    std::iota(indices.begin(), indices.end(), static_cast<std::uint32_t>(begin));
    const Pass& pass = model.inference_pass(indices.size());
    data.pick(indices, pass.pixels.data(), labels.data());
    model.forward(pass);
    const Score score = cross_entropy(pass.logits, labels, 0.0f, {});
    total.loss += score.loss;
    total.correct += score.correct;
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
      reducer_(comm, model.gradients(), model.layer_offsets(), options.bucket_bytes, options.overlap),
      identity_{options.seed, options.batch, data.train.size(), data.checksum()},
      steps_(steps_per_epoch(data.train.size(), options.batch)) {
  require_equal(comm_, "data sets", identity_.data_checksum);
}

void Trainer::resume(const std::filesystem::path& file) {
  std::string bytes;
  together(comm_, [&] {
    if (comm_.rank() == 0) bytes = read_whole(file);
  });
  bytes = from_rank_0(comm_, std::move(bytes));
  together(comm_, [&] { at_ = unpack_checkpoint(bytes, file, identity_, model_, optimizer_); });
  saved_at_ = at_.total_steps;
  if (comm_.rank() == 0) return;
  at_.score = {};  // what was trained on so far counts once
  at_.images = 0;
}

void Trainer::run() {
  const Cadence& every = options_.checkpoint_every;
  while (at_.epoch < options_.epochs && at_.total_steps < options_.max_steps) {
    const std::vector<std::uint32_t> order = epoch_order(data_.train.size(), options_.seed, at_.epoch);
    const std::uint64_t bytes_before = comm_.bytes_sent();
    const std::size_t first_step = at_.total_steps;
    const auto start = Clock::now();
    double outside = 0;  // seconds that were not training
    while (at_.step < steps_ && at_.total_steps < options_.max_steps) {
      train_step(order);
      if (comm_.rank() == 0) report_.progress(at_.epoch + 1, at_.step, steps_);
      if (every.steps && at_.step < steps_ && at_.total_steps % every.count == 0) {
        const auto pause = Clock::now();
        save_checkpoint();
        outside += seconds_since(pause);
      }
    }
    finish_epoch(seconds_since(start) - outside, first_step, bytes_before);
    if (at_.step < steps_) break;  // stopped within an epoch, and that is where a continuation starts

    at_ = {at_.epoch + 1, 0, at_.total_steps, {}, 0};
    if ((every.steps ? at_.total_steps : at_.epoch) % every.count == 0) save_checkpoint();
  }
  if (saved_at_ != at_.total_steps) save_checkpoint();
}

void Trainer::train_step(std::span<const std::uint32_t> order) {
  const Shard batch = batch_of(at_.step, options_.batch, order.size());
  const Shard mine = shard_of(batch, comm_.rank(), comm_.size());
  const Score score = compute_gradients(model_, data_.train, order.subspan(mine.begin, mine.size()), batch.size(),
                                        labels_, [this](std::size_t from) { reducer_.ready(from); });
  reducer_.finish();
  optimizer_.apply(model_.parameters(), model_.gradients(), options_.schedule.rate(at_.epoch));

  loss_of_step_.push_back(score.loss);
  at_.score.loss += score.loss;
  at_.score.correct += score.correct;
  at_.images += mine.size();
  ++at_.step;
  ++at_.total_steps;
}

void Trainer::finish_epoch(double seconds, std::size_t first_step, std::uint64_t bytes_before) {
  const std::uint64_t bytes_sent = comm_.bytes_sent() - bytes_before;
  const CommunicationTimes times = reducer_.take_times();
  require_equal(comm_, fmt::format("weights after epoch {}", at_.epoch + 1), hash_of(model_.parameters()));

  const auto my_part = [&](const Dataset& set) { return shard_of({0, set.size()}, comm_.rank(), comm_.size()); };
  const Score train = evaluate(model_, data_.train, my_part(data_.train));
  const Score test = evaluate(model_, data_.test, my_part(data_.test));
  std::array<double, 9> sums = {at_.score.loss,
                                static_cast<double>(at_.score.correct),
                                static_cast<double>(at_.images),
                                static_cast<double>(train.correct),
                                static_cast<double>(test.correct),
                                seconds,
                                times.exposed,
                                times.hidden,
                                static_cast<double>(bytes_sent)};
  comm_.all_reduce(sums);
  comm_.all_reduce(loss_of_step_);

  const std::size_t steps = loss_of_step_.size();
  if (comm_.rank() == 0) {
    std::size_t images_now = 0;  // trained on by this run; `sums` also counts those before a resume
    for (std::size_t i = 0; i < steps; ++i) {
      const std::size_t images = batch_of(at_.step - steps + i, options_.batch, data_.train.size()).size();
      loss_of_step_[i] /= static_cast<double>(images);
      images_now += images;
    }
    report_.losses(first_step, loss_of_step_);

    const double ranks = comm_.size(), to_ms = ratio(1e3, ranks * static_cast<double>(steps));
    EpochReport report;
    report.epoch = at_.epoch + 1;
    report.steps = steps;
    report.learning_rate = options_.schedule.rate(at_.epoch);
    report.loss = ratio(sums[0], sums[2]);
    report.running_train_accuracy = ratio(sums[1], sums[2]);
    report.train_accuracy = ratio(sums[3], static_cast<double>(data_.train.size()));
    report.test_accuracy = ratio(sums[4], static_cast<double>(data_.test.size()));
    report.images_per_second = ratio(static_cast<double>(images_now), sums[5] / ranks);
    report.compute_ms = (sums[5] - sums[6]) * to_ms;
    report.exposed_ms = sums[6] * to_ms;
    report.hidden_ms = sums[7] * to_ms;
    report.bytes_sent = static_cast<std::uint64_t>(sums[8]);
    report_.epoch(report);
  }
  loss_of_step_.clear();
}

void Trainer::save_checkpoint() {
  if (options_.checkpoint.empty()) return;
  std::array<double, 3> sums = {at_.score.loss, static_cast<double>(at_.score.correct),
                                static_cast<double>(at_.images)};
  comm_.all_reduce(sums);
  together(comm_, [&] {
    if (comm_.rank() != 0) return;
    Position position = at_;
    position.score = {sums[0], static_cast<std::size_t>(sums[1])};
    position.images = static_cast<std::size_t>(sums[2]);
    write_atomically(options_.checkpoint, pack_checkpoint(model_, optimizer_, identity_, position));
  });
  saved_at_ = at_.total_steps;
}

}  // namespace mnist
