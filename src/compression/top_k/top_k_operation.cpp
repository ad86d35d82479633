// Implementation of TopKOperation, which performs one top-k call, an all-reduce of a gradient.
//
// The residual is the sum of values that were not sent yet. A call first adds the gradient to the residual. A sparse
// call then sends only the k elements of greatest magnitude of the sum. A dense call sends the whole sum.
//
// A sparse call consists of several phases, which top_k_operation.hpp lists. A slice is the range of the tensor from
// which one rank selects elements. If the ranks of a host first add their gradients, each slice is a part of the
// tensor. Otherwise the slice of each rank is the whole tensor. An owner is a rank whose slice is not empty.
#include "compression/top_k/top_k_operation.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "compression/top_k/vector_scan.hpp"

namespace collectives {
namespace {

/// Returns the factor by which the gradient of `call` is multiplied so that its norm does not exceed `clip`. Returns 1
/// if the norm is small enough or not finite, or if there is no limit.
float clipping_factor(float clip, const TopKOperation::Call& call) {
  if (clip == 0) return 1;
  const double norm = std::sqrt(squared_norm({call.input, call.plan->n}));
  const double most = static_cast<double>(clip) / std::sqrt(static_cast<double>(call.view->world.size()));
  return norm > most && std::isfinite(norm) ? static_cast<float>(most / norm) : 1.0F;
}

/// Writes `scale` times the gradient of `call` to `scaled`.
void scale_gradient(const TopKOperation::Call& call, float scale, std::vector<float>& scaled) {
  scaled.resize(call.plan->n);
  for (std::size_t i = 0; i < scaled.size(); ++i) scaled[i] = call.input[i] * scale;
}

}  // namespace

// ---- begin and end of a call ----

void TopKOperation::set_device_selection(const std::uint32_t* indices, const float* values,
                                         std::chrono::nanoseconds took) {
  device_selection_ = {indices, values, 0};
  device_took_ = took;
}

void TopKOperation::report_device_sum(std::size_t union_size, std::chrono::nanoseconds took) {
  report_.set_union_size(union_size);
  report_.add_time(took);
}

/// Resets this object for a new call. Counts the call in the residual state.
void TopKOperation::start(const Call& call) {
  busy_ = true;
  reserved_ = false;
  call_ = call;
  residual_.state().count = call.plan->n;
  ++residual_.state().calls;
  report_.begin(*call.plan, call.dense_bytes);
  undo_ = sent_copy_ = false;
  selection_.release();
  zero_fill_.start(nullptr, 0);
}

void TopKOperation::begin(const Call& call) {
  const auto from = Clock::now();
  start(call);
  device_selection_.indices == nullptr ? select_on_host() : adopt_device_selection();
  report_.add_time_since(from);
}

void TopKOperation::select_on_host() {
  residual_.move_to_host();
  if (call_.plan->in_hosts) {
    phase_ = options_.error_feedback ? Phase::agree_to_move : Phase::migrate_residuals;
    return;
  }
  ResidualState& state = residual_.state();
  state.cover_tensor(options_);
  if (options_.error_feedback) state.residual.resize(state.count);
  phase_ = Phase::exchange;
  choose(call_.input, clipping_factor(options_.clip, call_));
}

/// Starts the exchange of the entries that a GPU has selected. The GPU writes the whole result, so no `zero_fill_`
/// starts here.
void TopKOperation::adopt_device_selection() {
  phase_ = Phase::exchange;
  report_.add_time(device_took_);
  if (residual_.state().slice.count == 0) return;
  device_selection_.count = format().k;
  send(device_selection_, format(), {});
}

const float* TopKOperation::dense_input(const Call& call) {
  const auto from = Clock::now();
  start(call);
  report_.set_dense();
  phase_ = Phase::done;
  residual_.move_to_host(call.plan->n);
  const float scale = clipping_factor(options_.clip, call_);
  const bool careful = options_.non_finite != NonFinite::propagate;
  if (scale == 1 && !careful && options_.momentum == 0 && residual_.state().residual.empty()) {
    report_.add_time_since(from);
    return call.input;
  }
  scale_gradient(call_, scale, gradient_);
  const std::size_t count = gradient_.size();
  std::size_t bad = careful ? first_non_finite(gradient_) : count;
  if (bad == count) {
    add_residual();
    if (careful) bad = first_non_finite(gradient_);
  }
  if (careful) {
    phase_ = Phase::agree;
    exchange_.start(
        {.form = SparseForm::gathered, .format = {}, .view = call.view, .frame_bytes = call.tuning->frame_bytes}, {},
        bad == count ? SparseExchange::MemberStatus{}
                     : SparseExchange::MemberStatus{1, static_cast<std::uint32_t>(bad)});
  }
  report_.add_time_since(from);
  return gradient_.data();
}

/// Turns `gradient_` into the vector that a dense call sends. With momentum, the new velocity replaces the gradient:
/// momentum * velocity + gradient. Adds the residual, and empties it.
void TopKOperation::add_residual() {
  ResidualState& state = residual_.state();
  for (std::size_t i = 0; i < state.velocity.size(); ++i)
    gradient_[i] = state.velocity[i] = options_.momentum * state.velocity[i] + gradient_[i];
  for (std::size_t i = 0; i < state.residual.size(); ++i) gradient_[i] += state.residual[i];
  state.residual.clear();
  sent_copy_ = true;
}

void TopKOperation::abandon() noexcept {
  busy_ = false;
  device_selection_ = {};
  if (std::exchange(reserved_, false)) return;
  take_back();
  migration_.undo(residual_.state());
  --residual_.state().calls;
}

/// Puts the sent values back into the residual, because the ranks discard them.
void TopKOperation::take_back() noexcept {
  report_.set_nothing_sent();
  if (!options_.error_feedback || !(selection_.is_taken() || sent_copy_)) return;
  ResidualState& state = residual_.state();
  if (sent_copy_)
    std::swap(state.residual, gradient_);
  else
    selection_.put_back(state);
  state.drop_unrepresentable(options_.values);
  selection_.release();
  sent_copy_ = false;
}

// ---- phases ----

bool TopKOperation::next(Job& job) {
  const auto from = Clock::now();
  const bool has_next = next_phase(job);
  report_.add_time_since(from);
  return has_next;
}

bool TopKOperation::next_phase(Job& job) {
  ResidualState& state = residual_.state();
  const bool in_hosts = call_.plan->in_hosts;
  const bool skips_in_hosts = in_hosts && options_.non_finite == NonFinite::skip;
  const auto owner = [&] { return state.slice.count > 0; };
  const int slices = call_.plan->slices;
  for (;;) switch (phase_) {
      case Phase::agree_to_move:
        phase_ = Phase::migrate_residuals;
        in_host_.ask(job, !residual_.keeps(slices, call_.plan->slice(call_.view->grid.local)));
        return true;
      case Phase::migrate_residuals: keep_slice(options_.error_feedback && in_host_.any()); break;
      case Phase::move_residual:
        phase_ = options_.momentum > 0 ? Phase::move_velocity : Phase::add_inside;
        in_host_.add(job, state.count, slices, migration_.residual(), state.residual, state.slice);
        return true;
      case Phase::move_velocity:
        phase_ = Phase::add_inside;
        in_host_.add(job, state.count, slices, migration_.velocity(), state.velocity, state.slice);
        return true;
      case Phase::add_inside:
        phase_ = Phase::choose;
        in_host_.add(job, state.count, slices, clipped(), host_sum_, state.slice);
        return true;
      case Phase::choose:
        phase_ = Phase::exchange;
        if (owner()) choose(host_sum_.data(), 1);
        break;
      case Phase::exchange:
        if (owner() && exchange_.next(job)) return true;
        phase_ = Phase::share_inside;
        if (owner()) receive_status();
        if (!skips_in_hosts) break;
        in_host_.ask(job, undo_);
        return true;
      case Phase::share_inside:
        phase_ = Phase::done;
        if (skips_in_hosts) undo_ = in_host_.any();
        if (device_selection_.indices != nullptr) {
          if (owner()) report_.set_sent_bytes(exchange_.bytes_sent());
          break;
        }
        if (owner()) undo_ ? undo() : add_up();
        if (!in_hosts) break;
        in_host_.gather(job, state.count, slices, call_.output);
        return true;
      case Phase::agree:  // Phase of a dense call only.
        if (exchange_.next(job)) return true;
        phase_ = Phase::done;
        receive_status();
        if (undo_) undo();
        break;
      case Phase::done:
        selection_.release();
        sent_copy_ = false;
        device_selection_ = {};
        migration_.end();
        return false;
    }
}

/// Makes the residual state of this rank cover only its slice. If `moves`, the state of some rank of the host covers
/// another range. The next phases then add the states of all ranks of the host.
void TopKOperation::keep_slice(bool moves) {
  ResidualState& state = residual_.state();
  const Range slice = call_.plan->slice(call_.view->grid.local);
  phase_ = moves ? Phase::move_residual : Phase::add_inside;
  if (moves) {
    state.cover_tensor(options_);
    migration_.begin(state);
  }
  state.cover_slice(options_, call_.plan->slices, slice);
  host_sum_.resize(slice.count);
}

/// Returns the caller's gradient, or a scaled copy if its norm exceeds the limit.
const float* TopKOperation::clipped() {
  const float scale = clipping_factor(options_.clip, call_);
  if (scale == 1) return call_.input;
  scale_gradient(call_, scale, gradient_);
  return gradient_.data();
}

SparseFormat TopKOperation::format() const {
  return call_.plan->format(call_.plan->in_hosts ? call_.view->grid.local : 0);
}

/// Selects this rank's entries from its slice and starts their exchange.
void TopKOperation::choose(const float* gradient, float scale) {
  ResidualState& state = residual_.state();
  const SparseFormat slice_format = format();
  const SparseExchange::MemberStatus status = selection_.select(gradient, scale, slice_format, state);
  zero_fill_.start(call_.output + state.slice.first, state.slice.count);
  send(selection_.entries(), slice_format, status);
}

void TopKOperation::send(const Entries& own, const SparseFormat& format, SparseExchange::MemberStatus status) {
  report_.set_selection(own);
  exchange_.start({.form = call_.plan->form,
                   .format = format,
                   .view = call_.view,
                   .along_rail = call_.plan->in_hosts,
                   .frame_bytes = call_.tuning->frame_bytes,
                   .rounds_in_flight = call_.rounds_in_flight,
                   .divisor = call_.divisor},
                  own, status);
}

/// Reads the statuses of all members of the exchange. If a member had NaN or infinity, the option `non_finite` decides.
/// The call goes on, is undone, or throws.
void TopKOperation::receive_status() {
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
                            residual_.state().slice.first + first),
                call_.view->world.self, rank);
  }
}

/// Sets some elements of the result to zero while the exchange waits for peers. Most of the result is zero.
bool TopKOperation::local_work() {
  if (phase_ != Phase::exchange || zero_fill_.is_complete()) return false;
  zero_fill_.fill_some();
  return true;
}

void TopKOperation::add_up() {
  ResidualState& state = residual_.state();
  zero_fill_.fill_rest();
  report_.set_union_size(exchange_.add_to(call_.output + state.slice.first));
  // Masking waits until the statuses of all members have arrived.
  if (options_.masking && options_.non_finite != NonFinite::propagate && options_.momentum > 0)
    selection_.clear_velocity(state);
  report_.set_sent_bytes(exchange_.bytes_sent());
}

/// Sets the result to zero. Puts the sent values back into the residual.
void TopKOperation::undo() {
  const Range slice = residual_.state().slice;
  zero_fill_.start(call_.output + slice.first, slice.count);
  zero_fill_.fill_rest();
  report_.set_sent_bytes(exchange_.bytes_sent());
  take_back();
}

}  // namespace collectives
