// The beginning and the end of a call, the selection of elements, and the report. sparse_phases.cpp holds the phases
// that follow; sparse_residual.cpp holds the state between calls.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "collectives/error.hpp"
#include "compression/top_k/top_k_impl.hpp"

namespace collectives {
namespace {

double squared_norm(std::span<const float> values) {
  // Several independent sums let the additions overlap.
  constexpr std::size_t kSums = 8;
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= values.size(); i += kSums)
    for (std::size_t s = 0; s < kSums; ++s)
      sums[s] += static_cast<double>(values[i + s]) * static_cast<double>(values[i + s]);
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return std::accumulate(std::begin(sums), std::end(sums), 0.0);
}

/// Returns the index of the first value that is NaN or infinite. Returns the number of values if all are finite.
std::size_t first_non_finite(std::span<const float> values) {
  const auto not_finite = [](float value) {
    constexpr std::uint32_t kExponent = 0x7f800000;
    return (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent;
  };
  // The loop tests whole blocks, because a compiler does not vectorize a loop that can end at every element.
  constexpr std::size_t kBlock = 1024;
  std::size_t at = 0;
  for (; at + kBlock <= values.size(); at += kBlock) {
    std::uint32_t found = 0;
    for (const float value : values.subspan(at, kBlock)) found |= not_finite(value);
    if (found != 0) break;
  }
  const auto first = std::find_if(values.begin() + static_cast<std::ptrdiff_t>(at), values.end(), not_finite);
  return static_cast<std::size_t>(first - values.begin());
}

}  // namespace

void SparseTensor::check(std::size_t count, Rank rank) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("all_reduce ({}): top-k: {}", name_, why), rank, kNoRank,
                "all_reduce");
  };
  if (busy_) refuse("another call of this name is under way");
  if (state.count != 0 && state.count != count)
    refuse(fmt::format("{} elements, but those before had {}", count, state.count));
  if (count >= kTooMany) refuse(fmt::format("{} elements are more than indices of 32 bits reach", count));
}

std::size_t SparseTensor::next_k(std::size_t count) const {
  if (options_.k > 0) return std::min(options_.k, count);
  double density = options_.density;
  if (state.calls < options_.warm_up_calls)
    density = options_.warm_up_density *
              std::pow(options_.density / options_.warm_up_density,
                       static_cast<double>(state.calls) / static_cast<double>(options_.warm_up_calls));
  return std::min(count, static_cast<std::size_t>(std::ceil(density * static_cast<double>(count) * (1 - 1e-12))));
}

SparseFormat SparseTensor::format() const {
  return call_.plan->format(call_.plan->in_hosts ? call_.view->grid.local : 0);
}

void SparseTensor::set_device_selection(const std::uint32_t* indices, const float* values,
                                        std::chrono::nanoseconds took) {
  device_selection_ = {indices, values, 0};
  choosing_took_ = took;
}

void SparseTensor::begin(const Call& call) {
  const auto from = Clock::now();
  busy_ = true;
  reserved_ = false;
  call_ = call;
  state.count = call.plan->n;
  ++state.calls;
  begin_report();
  undo_ = chosen_ = sent_copy_ = false;
  cleared_ = 0;
  if (device_selection_.indices == nullptr) {
    begin_here();
  } else {
    phase_ = Phase::exchange;
    cleared_ = state.slice.count;  // The GPU writes the result.
    report_.coding_seconds = std::chrono::duration<double>(choosing_took_).count();
    if (state.slice.count > 0) {
      device_selection_.count = format().k;
      encode(device_selection_, format(), {});
    }
  }
  add_time(from);
}

void SparseTensor::begin_here() {
  fetch_residual();
  if (call_.plan->in_hosts) {
    moves_ = keeps(call_.plan->slices, call_.plan->slice(call_.view->grid.local)) ? 0.0F : 1.0F;
    moved_by_ = 0;
    phase_ = options_.error_feedback ? Phase::agree_to_move : Phase::migrate_residuals;
  } else {
    keep_for_rank();
    if (options_.error_feedback) state.residual.resize(state.count);
    phase_ = Phase::exchange;
    choose(call_.input, clipping());
  }
}

const float* SparseTensor::dense_input(const Call& call) {
  const auto from = Clock::now();
  busy_ = true;
  reserved_ = false;
  call_ = call;
  state.count = call.plan->n;
  ++state.calls;
  sent_norm_ = 0;
  begin_report();
  report_.chosen = state.count;
  report_.sent_bytes = call.dense_bytes;
  undo_ = chosen_ = sent_copy_ = false;
  phase_ = Phase::done;
  bring_residual_to_host(state.count);
  const float scale = clipping();
  const bool careful = options_.non_finite != NonFinite::propagate;
  if (scale == 1 && !careful && options_.momentum == 0 && state.residual.empty()) {
    add_time(from);
    return call.input;
  }
  gradient_.resize(state.count);
  for (std::size_t i = 0; i < state.count; ++i) gradient_[i] = call.input[i] * scale;
  std::size_t bad = careful ? first_non_finite(gradient_) : state.count;
  if (bad == state.count) {
    for (std::size_t i = 0; i < state.velocity.size(); ++i)
      gradient_[i] = state.velocity[i] = options_.momentum * state.velocity[i] + gradient_[i];
    for (std::size_t i = 0; i < state.residual.size(); ++i) gradient_[i] += state.residual[i];
    state.residual.clear();
    sent_copy_ = true;
    if (careful) bad = first_non_finite(gradient_);
  }
  if (careful) {
    phase_ = Phase::agree;
    exchange_.start(
        {.form = SparseForm::gathered, .format = {}, .view = call.view, .frame_bytes = call.tuning->frame_bytes}, {},
        bad == state.count ? SparseExchange::MemberStatus{}
                           : SparseExchange::MemberStatus{1, static_cast<std::uint32_t>(bad)});
  }
  add_time(from);
  return gradient_.data();
}

void SparseTensor::abandon() noexcept {
  busy_ = false;
  device_selection_ = {};
  if (std::exchange(reserved_, false)) return;
  take_back();
  if (!moved_residual_.empty()) {
    state.residual = std::exchange(moved_residual_, {});
    state.velocity = std::exchange(moved_velocity_, {});
    state.slices = 0;
    state.slice = {0, state.count};
  }
  --state.calls;
}

// ---- selection ----

float SparseTensor::clipping() const {
  if (options_.clip == 0) return 1;
  const double norm = std::sqrt(squared_norm({call_.input, state.count}));
  const double most = static_cast<double>(options_.clip) / std::sqrt(static_cast<double>(call_.view->world.size()));
  return norm > most && std::isfinite(norm) ? static_cast<float>(most / norm) : 1.0F;
}

/// Returns the caller's gradient, or a scaled copy if its norm exceeds the limit.
const float* SparseTensor::clipped() {
  const float scale = clipping();
  if (scale == 1) return call_.input;
  gradient_.resize(state.count);
  for (std::size_t i = 0; i < state.count; ++i) gradient_[i] = call_.input[i] * scale;
  return gradient_.data();
}

void SparseTensor::choose(const float* gradient, float scale) {
  const SparseFormat what = format();
  indices_.resize(what.k);
  values_.resize(what.k);
  std::uint32_t* indices = indices_.data();
  float* values = values_.data();
  const std::span<const float> given(gradient, what.n);
  SparseExchange::MemberStatus status{};
  const bool careful = options_.non_finite != NonFinite::propagate;
  if (const std::size_t bad = careful ? first_non_finite(given) : what.n; bad < what.n) {
    // The residual must stay free of this gradient. The status tells all members that the call sends nothing.
    std::iota(indices, indices + what.k, 0U);
    std::fill_n(values, what.k, 0.0F);
    status = {1, static_cast<std::uint32_t>(bad)};
  } else {
    status.non_finite = static_cast<std::uint32_t>(selector_.select({.gradient = given,
                                                                     .accumulated = state.residual,
                                                                     .velocity = state.velocity,
                                                                     .momentum = options_.momentum,
                                                                     .scale = scale,
                                                                     .masking = options_.masking && !careful},
                                                                    what.k, indices, values));
    chosen_ = true;
    const auto lost = [&](float value) { return !std::isfinite(arrives(value)); };
    if (what.values == DataType::bf16)
      status.non_finite = static_cast<std::uint32_t>(std::ranges::count_if(values_, lost));
    if (status.non_finite > 0) status.first_non_finite = indices[std::ranges::find_if(values_, lost) - values_.begin()];
    if (options_.error_feedback && what.values == DataType::bf16)
      for (std::size_t i = 0; i < what.k; ++i)
        if (const float error = values[i] - arrives(values[i]); std::isfinite(error))
          state.residual[indices[i]] = error;
  }
  encode({indices, values, what.k}, what, status);
}

void SparseTensor::encode(const Entries& own, const SparseFormat& what, SparseExchange::MemberStatus status) {
  sent_norm_ = squared_norm({own.values, own.count});
  report_.chosen = own.count;
  exchange_.start({.form = call_.plan->form,
                   .format = what,
                   .view = call_.view,
                   .along_rail = call_.plan->in_hosts,
                   .frame_bytes = call_.tuning->frame_bytes,
                   .rounds_in_flight = call_.rounds_in_flight,
                   .divisor = call_.divisor},
                  own, status);
}

// ---- report ----

/// Resets the report. Assigning to the existing string allocates no memory, because a repeated call has the same text.
void SparseTensor::begin_report() {
  report_.sparse = call_.plan->sparse;
  report_.reason.assign(call_.plan->reason);
  report_.count = state.count;
  report_.chosen = report_.union_size = 0;
  report_.raw_bytes = call_.dense_bytes;
  report_.sent_bytes = 0;
  report_.coding_seconds = 0;
}

void SparseTensor::add_time(Clock::time_point from) {
  report_.coding_seconds += std::chrono::duration<double>(Clock::now() - from).count();
}

void SparseTensor::report_device_sum(std::size_t union_size, std::chrono::nanoseconds took) {
  report_.union_size = union_size;
  report_.coding_seconds += std::chrono::duration<double>(took).count();
}

TopKReport SparseTensor::report(bool norms) const {
  TopKReport report = report_;
  report.calls = state.calls;
  if (!norms) return report;
  const ResidualState* what = &state;
  ResidualState copy;
  if (device_residual != nullptr) what = &(copy = full_state());
  const double residual = squared_norm(what->residual) + squared_norm(what->pending);
  report.residual_norm = std::sqrt(residual);
  if (residual + sent_norm_ > 0) report.relative_error = std::sqrt(residual / (residual + sent_norm_));
  return report;
}

}  // namespace collectives
