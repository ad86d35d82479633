// TopKReportBuilder: collects the figures of the last top-k call of a tensor, and makes its report (TopKReport). A
// sparse call sends only the k elements of greatest magnitude. A dense call sends all elements. The residual is the
// part of gradients that was not sent yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "collectives/top_k.hpp"
#include "compression/sparse.hpp"
#include "compression/top_k/residual_state.hpp"
#include "planning/sparse_plan.hpp"

namespace collectives {

class TopKReportBuilder {
 public:
  using Clock = std::chrono::steady_clock;

  /// Resets the figures for a call that follows `plan`. A dense call of this rank sends `dense_bytes` bytes.
  void begin(const SparsePlan& plan, std::size_t dense_bytes);
  /// Sets the figures of a dense call.
  void set_dense() noexcept;
  /// Sets the number and the norm of the elements that this rank has selected.
  void set_selection(const Entries& own);
  void set_sent_bytes(std::uint64_t bytes) noexcept { report_.sent_bytes = bytes; }
  /// Sets the number of elements that at least one rank of the exchange has selected.
  void set_union_size(std::size_t size) noexcept { report_.union_size = size; }
  /// Records that no values were sent, because a failed call has returned them to the residual.
  void set_nothing_sent() noexcept { sent_norm_ = 0; }
  void add_time(std::chrono::nanoseconds took) {
    report_.coding_seconds += std::chrono::duration<double>(took).count();
  }
  void add_time_since(Clock::time_point from) { add_time(Clock::now() - from); }

  /// Returns the report after `calls` calls, without norms.
  TopKReport report(std::uint64_t calls) const;
  /// Returns the report with the norms of `state`, which must hold the whole residual of this rank.
  TopKReport report_with_norms(const ResidualState& state) const;

 private:
  TopKReport report_;
  double sent_norm_ = 0;  // Squared norm of the values that the last call sent.
};

}  // namespace collectives
