// Sparse all-reduce: dense inside a host, sparse between hosts.
//
// The tensor is cut into slices, one per rank of a host. A call has these phases:
//
//   agree_to_move, migrate_residuals, move_residual, move_velocity   see below
//   add_inside     The ranks of a host add their gradients. The owner of each slice has the sum of the slice.
//   choose         Each owner adds the sum to its residual and selects its share of the k elements.
//   exchange       The owners of the same slice, one per host, exchange their selections (sparse_exchange.hpp).
//   share_inside   Each owner writes its slice of the result. The ranks of a host gather the slices.
//
// A call consists of choose and exchange alone in three cases: all ranks are on one host, each host has one rank, or
// the call is deterministic.
//
// A residual belongs to one rank, or to the owner of a slice. In the first call, and in the first sparse call after
// dense ones, the ranks of a host still have residuals of their own. The migrate phases then add them inside the host,
// so nothing is lost.
//
// Price: each slice gets its share of the k elements. The selection therefore depends on the number of ranks per host.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "compression/top_k/top_k_impl.hpp"
#include "hierarchical/hierarchical.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

// Phases inside a host, as Steps.

Peers owners(const RankView& view, const Parts& slices) {
  return view.grid.numbers.first(static_cast<std::size_t>(slices.size()));
}
void emit_add_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_reduce_scatter, args.parts, owners(view, args.parts),
                              {.finish = false}));
}
void emit_agree_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_reduce, args.parts, owners(view, args.parts), {}));
}
void emit_share_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_gather, args.parts, owners(view, args.parts),
                              {.source = Place::output}));
}

constexpr Algorithm kAddInside = phase_algorithm("top_k_add_inside", emit_add_inside);
constexpr Algorithm kAgreeInside = phase_algorithm("top_k_agree_inside", emit_agree_inside);
constexpr Algorithm kShareInside = phase_algorithm("top_k_share_inside", emit_share_inside);

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

/// Expands a slice to the whole tensor, with zeros elsewhere.
std::vector<float> SparseTensor::whole(std::vector<float>& of_slice) const {
  if (of_slice.size() == state.count || of_slice.empty()) return std::move(of_slice);
  std::vector<float> all(state.count);
  std::ranges::copy(of_slice, all.begin() + static_cast<std::ptrdiff_t>(state.slice.first));
  of_slice.clear();
  return all;
}

/// Gives this rank a state of the whole tensor. The state of a host's slice becomes the state of its owner. The sum
/// over all ranks stays unchanged.
void SparseTensor::keep_for_rank() {
  state.residual = whole(state.residual);
  state.velocity = whole(state.velocity);
  state.slices = 0;
  state.slice = {0, state.count};
  if (!state.pending.empty()) state.residual.resize(state.count);
  for (std::size_t i = 0; i < state.pending.size(); ++i) state.residual[i] += state.pending[i];
  state.pending.clear();
  if (!options_.error_feedback) state.residual.clear();
  state.velocity.resize(options_.momentum > 0 ? state.count : 0);
}

/// Gives this rank the state of its slice. If any rank of the host has to move its state, all of them first add their
/// states inside the host. This case also arises if only some ranks took part in an earlier call of the tensor, or if a
/// failed call left its state on some ranks.
void SparseTensor::keep_for_host() {
  const Range slice = call_.plan->slice(call_.view->grid.local);
  phase_ = Phase::add_inside;
  if (moved_by_ > 0) {
    keep_for_rank();
    moved_residual_ = std::move(state.residual);
    moved_residual_.resize(state.count);
    moved_velocity_ = std::move(state.velocity);
    state.residual.clear();
    state.velocity.clear();
    phase_ = Phase::move_residual;
  }
  keep_slice(call_.plan->slices, slice);
  host_sum_.resize(slice.count);
}

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

void SparseTensor::fetch_residual() {
  if (device_residual == nullptr) return;
  device_residual->read(state.residual, state.velocity);
  if (device_residual->returned) drop_unrepresentable(state);
  device_residual = nullptr;
}

void SparseTensor::bring_residual_to_host(std::size_t count) {
  fetch_residual();
  state.count = count;
  keep_for_rank();
}

void SparseTensor::bring_slice_to_host(std::size_t count, int slices, Range slice) {
  fetch_residual();
  state.count = count;
  keep_slice(slices, slice);
}

void SparseTensor::keep_slice(int slices, Range slice) {
  state.slices = static_cast<std::uint32_t>(slices);
  state.slice = slice;
  state.residual.resize(options_.error_feedback ? slice.count : 0);
  state.velocity.resize(options_.momentum > 0 ? slice.count : 0);
}

void SparseTensor::move_residual_to_device(std::unique_ptr<DeviceResidual> where) {
  device_residual = std::move(where);
  state.residual = std::vector<float>();
  state.velocity = std::vector<float>();
}

void SparseTensor::set_device_selection(const std::uint32_t* indices, const float* values,
                                        std::chrono::nanoseconds took) {
  device_selection_ = {indices, values, 0};
  choosing_took_ = took;
}

void SparseTensor::report_device_sum(std::size_t union_size, std::chrono::nanoseconds took) {
  report_.union_size = union_size;
  report_.coding_seconds += std::chrono::duration<double>(took).count();
}

ResidualState SparseTensor::full_state() const {
  ResidualState all = state;
  if (device_residual != nullptr) device_residual->read(all.residual, all.velocity);
  if (device_residual != nullptr && device_residual->returned) drop_unrepresentable(all);
  return all;
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

/// Rounds the value to the type in which it is sent. A value that exceeds the range of bf16 becomes infinite.
float SparseTensor::arrives(float value) const {
  return options_.values == DataType::bf16 ? static_cast<float>(bfloat16(value)) : value;
}

/// Returns the sent values to the residual, because no rank receives them. A value that would not arrive as a finite
/// number is dropped with its velocity. Otherwise the value would make every later call fail.
void SparseTensor::take_back() noexcept {
  sent_norm_ = 0;
  if (!options_.error_feedback || !(chosen_ || sent_copy_)) return;
  if (sent_copy_)
    std::swap(state.residual, gradient_);
  else
    for (std::size_t i = 0; i < values_.size(); ++i) state.residual[indices_[i]] = values_[i];
  drop_unrepresentable(state);
  chosen_ = sent_copy_ = false;
}

void SparseTensor::drop_unrepresentable(ResidualState& of) const noexcept {
  for (std::size_t i = 0; i < of.residual.size(); ++i)
    if (!std::isfinite(arrives(of.residual[i]))) {
      of.residual[i] = 0;
      if (!of.velocity.empty()) of.velocity[i] = 0;
    }
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

bool SparseTensor::next(Job& job) {
  const auto from = Clock::now();
  const bool has_next = next_phase(job);
  add_time(from);
  return has_next;
}

bool SparseTensor::next_phase(Job& job) {
  const bool in_hosts = call_.plan->in_hosts;
  const auto owner = [&] { return state.slice.count > 0; };
  const int slices = call_.plan->slices;
  const auto phase_job = [&](const Algorithm& algorithm, std::size_t count, int parts, const float* input,
                             float* output) {
    phase_plan_ = {};
    phase_plan_.algorithm = &algorithm;
    phase_plan_.segment = count;
    job = {.plan = &phase_plan_,
           .args = {{Collective::all_reduce}, Parts::equal({0, count}, parts)},
           .op = ReduceOp::sum,
           .type = DataType::f32,
           .input = reinterpret_cast<const std::byte*>(input),
           .output = reinterpret_cast<std::byte*>(output),
           .tag = job.tag};
    return true;
  };
  // Returns the address of the tensor's element 0, computed from a list that holds only the slice.
  const auto from_start = [&](std::vector<float>& slice) {
    return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(slice.data()) - state.slice.first * sizeof(float));
  };
  for (;;) switch (phase_) {
      case Phase::agree_to_move:
        phase_ = Phase::migrate_residuals;
        return phase_job(kAgreeInside, 1, 1, &moves_, &moved_by_);
      case Phase::migrate_residuals: keep_for_host(); break;
      case Phase::move_residual:
        phase_ = options_.momentum > 0 ? Phase::move_velocity : Phase::add_inside;
        return phase_job(kAddInside, state.count, slices, moved_residual_.data(), from_start(state.residual));
      case Phase::move_velocity:
        phase_ = Phase::add_inside;
        return phase_job(kAddInside, state.count, slices, moved_velocity_.data(), from_start(state.velocity));
      case Phase::add_inside:
        phase_ = Phase::choose;
        return phase_job(kAddInside, state.count, slices, clipped(), from_start(host_sum_));
      case Phase::choose:
        phase_ = Phase::exchange;
        if (owner()) choose(host_sum_.data(), 1);
        break;
      case Phase::exchange:
        if (owner() && exchange_.next(job)) return true;
        phase_ = Phase::share_inside;
        if (owner()) receive_status();
        if (!in_hosts || options_.non_finite != NonFinite::skip) break;
        skipped_ = skipped_by_ = undo_ ? 1.0F : 0.0F;
        return phase_job(kAgreeInside, 1, 1, &skipped_, &skipped_by_);
      case Phase::share_inside:
        phase_ = Phase::done;
        if (in_hosts && options_.non_finite == NonFinite::skip) undo_ = skipped_by_ > 0;
        if (device_selection_.indices != nullptr) {
          if (owner()) report_.sent_bytes = exchange_.bytes_sent();
          break;
        }
        if (owner()) undo_ ? undo() : add_up();
        if (!in_hosts) break;
        return phase_job(kShareInside, state.count, slices, call_.output, call_.output);
      case Phase::agree:  // Only in a dense call.
        if (exchange_.next(job)) return true;
        phase_ = Phase::done;
        receive_status();
        if (undo_) undo();
        break;
      case Phase::done:
        chosen_ = sent_copy_ = false;
        device_selection_ = {};
        moved_residual_ = std::vector<float>();
        moved_velocity_ = std::vector<float>();
        return false;
    }
}

/// Reads the statuses of all members.
void SparseTensor::receive_status() {
  for (std::size_t m = 0; m < exchange_.members(); ++m) {
    const auto [non_finite, first] = exchange_.status_of(m);
    if (non_finite == 0 || options_.non_finite == NonFinite::propagate) continue;
    undo_ = true;
    if (options_.non_finite != NonFinite::abort) continue;
    // The value was found in the sum of a host, so any rank of the host may have caused it.
    const Rank rank = exchange_.rank_of(m);
    const Peers who = call_.plan->in_hosts ? call_.view->grid.ranks_of(static_cast<int>(m)) : Peers(&rank, 1);
    throw Error(Errc::aborted,
                fmt::format("{} gave NaN or infinity at index {}", ranks_text({who.begin(), who.end()}),
                            state.slice.first + first),
                call_.view->world.self, rank);
  }
}

/// Sets part of the result to zero while the exchange is waiting, because most of the result is zero.
bool SparseTensor::local_work() {
  constexpr std::size_t kAtOnce = 64 << 10;  // Elements per call.
  if (phase_ != Phase::exchange || cleared_ == state.slice.count) return false;
  clear_result(std::min(kAtOnce, state.slice.count - cleared_));
  return true;
}

/// Sets the next `count` elements of the slice to zero. A slice of kPastTheCaches or more is written with streaming
/// stores, because the caches of one core cannot hold it. Plain stores would first read the lines from memory, and two
/// ranks on two cores need that bandwidth for the selection.
void SparseTensor::clear_result(std::size_t count) {
  alignas(64) static constexpr std::byte kZeros[32 << 10] = {};
  constexpr std::size_t kPastTheCaches = 8 << 20;  // Bytes.
  const Stores stores = state.slice.count * sizeof(float) >= kPastTheCaches ? Stores::streaming : Stores::cached;
  auto* to = reinterpret_cast<std::byte*>(call_.output + state.slice.first + cleared_);
  cleared_ += count;
  for (std::size_t left = count * sizeof(float), bytes; left > 0; left -= bytes, to += bytes)
    copy(to, kZeros, bytes = std::min(left, sizeof kZeros), stores);
  if (stores == Stores::streaming) fence_streams();
}

void SparseTensor::add_up() {
  clear_result(state.slice.count - cleared_);
  report_.union_size = exchange_.add_to(call_.output + state.slice.first);
  // Masking waits until the statuses of all members have arrived.
  if (options_.masking && options_.non_finite != NonFinite::propagate && options_.momentum > 0)
    for (const std::uint32_t index : indices_) state.velocity[index] = 0;
  report_.sent_bytes = exchange_.bytes_sent();
}

/// Sets the result to zero and returns the sent values to the residual.
void SparseTensor::undo() {
  cleared_ = 0;
  clear_result(state.slice.count);
  report_.sent_bytes = exchange_.bytes_sent();
  take_back();
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
