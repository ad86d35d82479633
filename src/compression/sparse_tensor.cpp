// A sparse all-reduce, stage by stage: the ranks of a host add, each from a slice of its own; every owner chooses, and
// those who own the same slice show one another what they have chosen; every owner adds that up, and the ranks of the
// host show one another their slices. Without several ranks in a host, only the middle is left.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/error.hpp"
#include "compression/top_k_impl.hpp"

namespace collectives {
namespace {

// The stages inside a host as Steps.

void emit_add_inside(const Seat& seat, const Task& task, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_reduce_scatter, Parts::equal(task.parts[0], seat.grid.slices()),
                              seat.grid.slice_owners(), {.finish = false}));
}
void emit_agree_inside(const Seat& seat, const Task& task, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_reduce, task.parts, seat.grid.numbers.first(1), {}));
}
void emit_share_inside(const Seat& seat, const Task& task, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_gather, Parts::equal(task.parts[0], seat.grid.slices()),
                              seat.grid.slice_owners(), {.own = Place::output}));
}

constexpr Algorithm stage(std::string_view name, void (*emit)(const Seat&, const Task&, StepSink&)) {
  return {"top_k", name, nullptr, "", nullptr, nullptr, nullptr, emit};
}
constexpr Algorithm kAddInside = stage("top_k_add_inside", emit_add_inside);
constexpr Algorithm kAgreeInside = stage("top_k_agree_inside", emit_agree_inside);
constexpr Algorithm kShareInside = stage("top_k_share_inside", emit_share_inside);

double squared_norm(std::span<const float> values) {
  // Several sums, so that the additions need not wait for one another.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t s = 0; s < kSums; ++s)
      sums[s] += static_cast<double>(values[i + s]) * static_cast<double>(values[i + s]);
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

}  // namespace

void SparseTensor::check(std::size_t count, Rank rank) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("all_reduce ({}): top-k: {}", name_, why), rank, kNoRank,
                "all_reduce");
  };
  if (busy_) refuse("another call of this name is under way");
  if (kept.calls > 0 && kept.count != count)
    refuse(fmt::format("{} elements, but those before had {}", count, kept.count));
  if (count > std::size_t{1} << 32) refuse(fmt::format("{} elements are more than indices of 32 bits reach", count));
}

std::size_t SparseTensor::next_k(std::size_t count) const {
  if (options_.k > 0) return std::min(options_.k, count);
  double density = options_.density;
  if (kept.calls < options_.warm_up_calls)
    density = options_.warm_up_density *
              std::pow(options_.density / options_.warm_up_density,
                       static_cast<double>(kept.calls) / static_cast<double>(options_.warm_up_calls));
  return std::min(count, static_cast<std::size_t>(std::ceil(density * static_cast<double>(count))));
}

SparseFormat SparseTensor::format() const {
  return call_.plan->in_hosts ? call_.plan->format(call_.seat->grid.slices(), call_.seat->grid.local)
                              : call_.plan->format(1, 0);
}

void SparseTensor::residual_is_pending() {
  if (!kept.residual.empty()) kept.pending.resize(kept.count);
  for (std::size_t i = 0; i < kept.residual.size(); ++i) kept.pending[kept.slice.first + i] += kept.residual[i];
  kept.residual.clear();
}

/// What a host keeps becomes its owner's. Sums over ranks stay what they are.
void SparseTensor::keep_for_rank() {
  if (kept.of_host) {
    residual_is_pending();
    std::vector<float> velocity(options_.momentum > 0 ? kept.count : 0);
    if (!velocity.empty())
      std::ranges::copy(kept.velocity, velocity.begin() + static_cast<std::ptrdiff_t>(kept.slice.first));
    kept.velocity = std::move(velocity);
    kept.of_host = false;
  }
  kept.slice = {0, kept.count};
  if (options_.momentum > 0) kept.velocity.resize(kept.count);
}

/// What ranks keep becomes that of the owner of each slice: what is pending goes in with the gradient, and velocities
/// are added inside the host first, by all its ranks or none.
void SparseTensor::keep_for_host(Range slice) {
  const bool moves = !kept.of_host && options_.momentum > 0 && kept.calls > 0;
  if (!kept.of_host || !(kept.slice == slice)) {
    residual_is_pending();
    moved_velocity_.clear();
    if (moves) moved_velocity_ = std::move(kept.velocity);
    kept.velocity.clear();  // with other slices than those of a run that was saved it starts again
  }
  if (moves) moved_velocity_.resize(kept.count);
  kept.of_host = true;
  kept.slice = slice;
  if (options_.error_feedback) kept.residual.resize(slice.count);
  if (options_.momentum > 0) kept.velocity.resize(slice.count);
  stage_ = moves ? Stage::move_velocity : Stage::add_inside;
}

float SparseTensor::clipping() const {
  if (options_.clip == 0) return 1;
  const double norm = std::sqrt(squared_norm({call_.input, kept.count}));
  const double most = static_cast<double>(options_.clip) / std::sqrt(static_cast<double>(call_.seat->world.size()));
  return norm > most && std::isfinite(norm) ? static_cast<float>(most / norm) : 1.0F;
}

/// The caller's gradient, clipped, with what is pending; the caller's own where nothing is to be done to it.
const float* SparseTensor::own_gradient() {
  const float scale = clipping();
  if (scale == 1 && kept.pending.empty()) return call_.input;
  gradient_.resize(kept.count);
  for (std::size_t i = 0; i < kept.count; ++i) gradient_[i] = call_.input[i] * scale;
  for (std::size_t i = 0; i < kept.pending.size(); ++i) gradient_[i] += kept.pending[i];
  kept.pending.clear();
  return gradient_.data();
}

void SparseTensor::begin(const Call& call) {
  const auto from = Clock::now();
  busy_ = true;
  call_ = call;
  kept.count = call.plan->n;
  begin_report();
  undo_ = false;
  cleared_ = 0;
  if (call.plan->in_hosts) {
    const hierarchical::Grid& grid = call.seat->grid;
    keep_for_host(grid.on_rail() ? part({0, kept.count}, grid.slices(), grid.local) : Range{});
    host_sum_.resize(kept.slice.count);
  } else {
    keep_for_rank();
    if (options_.error_feedback) {
      kept.residual.resize(kept.count);
      for (std::size_t i = 0; i < kept.pending.size(); ++i) kept.residual[i] += kept.pending[i];
    }
    kept.pending.clear();
    stage_ = Stage::exchange;
  }
  if (!call.plan->in_hosts) choose(call.input, clipping());
  ++kept.calls;
  report_.calls = kept.calls;
  add_time(from);
}

/// Takes no memory, which the text would if it were another one each time.
void SparseTensor::begin_report() {
  report_.sparse = call_.plan->sparse;
  report_.reason.assign(call_.plan->reason);
  report_.count = kept.count;
  report_.chosen = report_.united = 0;
  report_.raw_bytes = call_.dense_bytes;
  report_.sent_bytes = 0;
  report_.coding_seconds = 0;
}

void SparseTensor::add_time(Clock::time_point from) {
  report_.coding_seconds += std::chrono::duration<double>(Clock::now() - from).count();
}

const float* SparseTensor::give_all(const Call& call) {
  const auto from = Clock::now();
  busy_ = true;
  call_ = call;
  kept.count = call.plan->n;
  given_norm_ = 0;
  begin_report();
  report_.calls = kept.calls + 1;
  report_.chosen = kept.count;
  report_.sent_bytes = call.dense_bytes;
  keep_for_rank();
  const float* gradient = own_gradient();
  const bool careful = options_.non_finite != NonFinite::propagate;
  if (careful || options_.momentum > 0 || !kept.residual.empty()) {
    if (gradient != gradient_.data()) gradient_.assign(gradient, gradient + kept.count);
    gradient = gradient_.data();
  }
  undo_ = gave_nothing_ = false;
  stage_ = Stage::done;
  if (careful) {
    const auto bad = std::ranges::find_if_not(gradient_, [](float value) { return std::isfinite(value); });
    gave_nothing_ = bad != gradient_.end();
    stage_ = Stage::agree;
    exchange_.start(
        {.form = SparseForm::gathered, .format = {}, .seat = call.seat, .frame_bytes = call.tuning->frame_bytes}, {},
        gave_nothing_ ? SparseExchange::Word{1, static_cast<std::uint32_t>(bad - gradient_.begin())}
                      : SparseExchange::Word{});
  }
  if (!gave_nothing_) {
    for (std::size_t i = 0; i < kept.velocity.size(); ++i)
      gradient_[i] = kept.velocity[i] = options_.momentum * kept.velocity[i] + gradient_[i];
    for (std::size_t i = 0; i < kept.residual.size(); ++i) gradient_[i] += kept.residual[i];
    kept.residual.clear();
  }
  ++kept.calls;
  add_time(from);
  return gradient;
}

void SparseTensor::choose(const float* gradient, float scale) {
  const SparseFormat what = format();
  indices_.resize(what.k);
  values_.resize(what.k);
  std::uint32_t* indices = indices_.data();
  float* values = values_.data();
  const std::span<const float> given(gradient, what.n);
  const auto finite = [](float value) { return std::isfinite(value); };
  SparseExchange::Word word{};
  if (options_.non_finite == NonFinite::skip && !std::ranges::all_of(given, finite)) {
    // Nothing of it may come into the residual: the others hear that this call is none.
    std::iota(indices, indices + what.k, 0U);
    std::fill_n(values, what.k, 0.0F);
    word = {1, static_cast<std::uint32_t>(std::ranges::find_if_not(given, finite) - given.begin())};
    gave_nothing_ = true;
  } else {
    word.non_finite = static_cast<std::uint32_t>(selector_.select({.gradient = given,
                                                                   .accumulated = kept.residual,
                                                                   .velocity = kept.velocity,
                                                                   .momentum = options_.momentum,
                                                                   .scale = scale,
                                                                   .masking = options_.masking},
                                                                  what.k, indices, values));
    if (word.non_finite > 0)
      word.first_non_finite = indices[std::ranges::find_if_not(values_, finite) - values_.begin()];
    gave_nothing_ = false;
    if (options_.error_feedback && what.values == DataType::bf16)
      for (std::size_t i = 0; i < what.k; ++i)
        if (const float error = values[i] - static_cast<float>(bfloat16(values[i])); std::isfinite(error))
          kept.residual[indices[i]] = error;
  }
  given_norm_ = squared_norm({values, what.k});
  report_.chosen = what.k;
  exchange_.start({.form = call_.plan->form,
                   .format = what,
                   .seat = call_.seat,
                   .along_rail = call_.plan->in_hosts,
                   .frame_bytes = call_.tuning->frame_bytes,
                   .lanes = call_.lanes,
                   .divisor = call_.divisor},
                  {indices, values, what.k}, word);
}

bool SparseTensor::next(Job& job) {
  const auto from = Clock::now();
  const bool goes_on = go_on(job);
  add_time(from);
  return goes_on;
}

bool SparseTensor::go_on(Job& job) {
  const bool in_hosts = call_.plan->in_hosts, owner = kept.slice.count > 0;
  const auto stage_job = [&](const Algorithm& algorithm, std::size_t count, const float* input, float* output) {
    stage_plan_ = {};
    stage_plan_.algorithm = &algorithm;
    stage_plan_.segment = count;
    job = {.plan = &stage_plan_,
           .task = {{Collective::all_reduce}, Parts::equal({0, count}, 1)},
           .op = ReduceOp::sum,
           .type = DataType::f32,
           .input = reinterpret_cast<const std::byte*>(input),
           .output = reinterpret_cast<std::byte*>(output),
           .tag = job.tag};
    return true;
  };
  // A list that holds the slice, addressed from where element 0 of the tensor would be.
  const auto from_start = [&](std::vector<float>& slice) {
    return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(slice.data()) - kept.slice.first * sizeof(float));
  };
  for (;;) switch (stage_) {
      case Stage::move_velocity:
        stage_ = Stage::add_inside;
        return stage_job(kAddInside, kept.count, moved_velocity_.data(), from_start(kept.velocity));
      case Stage::add_inside:
        stage_ = Stage::choose;
        return stage_job(kAddInside, kept.count, own_gradient(), from_start(host_sum_));
      case Stage::choose:
        stage_ = Stage::exchange;
        if (owner) choose(host_sum_.data(), 1);
        break;
      case Stage::exchange:
        if (owner && exchange_.next(job)) return true;
        stage_ = Stage::share_inside;
        if (owner) hear();
        if (!in_hosts || options_.non_finite != NonFinite::skip) break;
        skipped_ = skipped_by_ = undo_ ? 1.0F : 0.0F;
        return stage_job(kAgreeInside, 1, &skipped_, &skipped_by_);
      case Stage::share_inside:
        stage_ = Stage::done;
        if (in_hosts && options_.non_finite == NonFinite::skip) undo_ = skipped_by_ > 0;
        if (owner) undo_ ? undo() : add_up();
        if (!in_hosts) break;
        return stage_job(kShareInside, kept.count, call_.output, call_.output);
      case Stage::agree:  // where everything was sent
        if (exchange_.next(job)) return true;
        stage_ = Stage::done;
        hear();
        if (undo_) undo_all();
        break;
      case Stage::done: busy_ = false; return false;
    }
}

/// What the members say of what they gave.
void SparseTensor::hear() {
  for (std::size_t m = 0; m < exchange_.members(); ++m) {
    const auto [non_finite, first] = exchange_.word_of(m);
    if (non_finite == 0 || options_.non_finite == NonFinite::propagate) continue;
    undo_ = true;
    if (options_.non_finite == NonFinite::abort)
      throw Error(Errc::aborted,
                  fmt::format("all_reduce ({}): rank {} gave NaN or infinity at index {}", name_, exchange_.rank_of(m),
                              kept.slice.first + first),
                  call_.seat->world.self, exchange_.rank_of(m), "all_reduce");
  }
}

/// Most of the result is zero, and can be before anything has come.
bool SparseTensor::meanwhile() {
  constexpr std::size_t kAtOnce = 64 << 10;  // elements
  if (stage_ != Stage::exchange || cleared_ == kept.slice.count) return false;
  const std::size_t count = std::min(kAtOnce, kept.slice.count - cleared_);
  std::fill_n(call_.output + kept.slice.first + cleared_, count, 0.0F);
  cleared_ += count;
  return true;
}

void SparseTensor::add_up() {
  std::fill_n(call_.output + kept.slice.first + cleared_, kept.slice.count - cleared_, 0.0F);
  report_.united = exchange_.add_to(call_.output + kept.slice.first);
  report_.sent_bytes = exchange_.bytes_sent();
}

/// The call gives nothing; what this rank had chosen goes back.
void SparseTensor::undo() {
  std::fill_n(call_.output + kept.slice.first, kept.slice.count, 0.0F);
  report_.sent_bytes = exchange_.bytes_sent();
  if (gave_nothing_ || !options_.error_feedback) return;
  for (std::size_t i = 0; i < values_.size(); ++i) kept.residual[indices_[i]] = values_[i];
}

/// The same where everything was sent.
void SparseTensor::undo_all() {
  std::fill_n(call_.output, kept.count, 0.0F);
  if (!gave_nothing_ && options_.error_feedback) kept.residual = gradient_;
}

TopKReport SparseTensor::report(bool norms) const {
  TopKReport report = report_;
  if (!norms) return report;
  const double residual = squared_norm(kept.residual) + squared_norm(kept.pending);
  report.residual_norm = std::sqrt(residual);
  if (residual + given_norm_ > 0) report.relative_error = std::sqrt(residual / (residual + given_norm_));
  return report;
}

}  // namespace collectives
