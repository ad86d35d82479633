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
// A residual is the part of gradients that was not sent yet. It belongs to one rank, or to the owner of a slice. In the
// first call, and in the first sparse call after dense ones, the ranks of a host still have residuals of their own. The
// migrate phases then add them inside the host, so nothing is lost.
//
// Price: each slice gets its share of the k elements. The selection therefore depends on the number of ranks per host.
#include <fmt/format.h>

#include <algorithm>
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

/// Returns the address of the tensor's element 0, computed from a list that holds only the slice.
float* element_zero(std::vector<float>& list, Range slice) {
  return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(list.data()) - slice.first * sizeof(float));
}

}  // namespace

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
  for (;;) switch (phase_) {
      case Phase::agree_to_move:
        phase_ = Phase::migrate_residuals;
        return start_phase(job, kAgreeInside, 1, 1, &moves_, &moved_by_);
      case Phase::migrate_residuals: keep_for_host(); break;
      case Phase::move_residual:
        phase_ = options_.momentum > 0 ? Phase::move_velocity : Phase::add_inside;
        return start_phase(job, kAddInside, state.count, slices, moved_residual_.data(),
                           element_zero(state.residual, state.slice));
      case Phase::move_velocity:
        phase_ = Phase::add_inside;
        return start_phase(job, kAddInside, state.count, slices, moved_velocity_.data(),
                           element_zero(state.velocity, state.slice));
      case Phase::add_inside:
        phase_ = Phase::choose;
        return start_phase(job, kAddInside, state.count, slices, clipped(), element_zero(host_sum_, state.slice));
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
        return start_phase(job, kAgreeInside, 1, 1, &skipped_, &skipped_by_);
      case Phase::share_inside:
        phase_ = Phase::done;
        if (in_hosts && options_.non_finite == NonFinite::skip) undo_ = skipped_by_ > 0;
        if (device_selection_.indices != nullptr) {
          if (owner()) report_.sent_bytes = exchange_.bytes_sent();
          break;
        }
        if (owner()) undo_ ? undo() : add_up();
        if (!in_hosts) break;
        return start_phase(job, kShareInside, state.count, slices, call_.output, call_.output);
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

/// Makes `job` a phase among the ranks of this host. Returns true.
bool SparseTensor::start_phase(Job& job, const Algorithm& algorithm, std::size_t count, int parts, const float* input,
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

}  // namespace collectives
