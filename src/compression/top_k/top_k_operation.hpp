// TopKOperation: performs one top-k call of a tensor, an all-reduce of gradients.
//
// The residual is the part of gradients that was not sent yet. A call adds gradient and residual. A sparse call, which
// begin() starts, sends only the k elements of greatest magnitude of the sum. A dense call, which dense_input() starts,
// sends the whole sum.
//
// If there are several hosts, and some host has several ranks, a sparse call adds whole vectors inside hosts, and sends
// selected elements between hosts. The tensor is cut into slices. Each slice has one owner on each host. The call has
// these phases:
//
//   agree_to_move, migrate_residuals, move_residual, move_velocity
//                  The ranks of a host add their residuals, if necessary (see below).
//   add_inside     The ranks of a host add their gradients. The owner of each slice has the sum of the slice.
//   choose         Each owner adds the sum to its residual, and selects the largest elements of its slice.
//   exchange       The owners of the same slice, one per host, exchange their selections (sparse_exchange.hpp).
//   share_inside   Each owner writes its slice of the result. The ranks of a host gather the slices.
//
// There are no phases inside hosts if all ranks are on one host, if each host has one rank, or if the call is
// deterministic. Each rank then selects elements from its own gradient, and all ranks exchange their selections.
//
// A residual of one rank's gradients covers the whole tensor. A residual of a host's sums covers one slice. In the
// first sparse call, and in the first sparse call after dense calls, each rank has a residual of the whole tensor. The
// first four phases add these residuals inside the host, so that no values are lost.
//
// A GPU can select and add in place of the CPU (device/top_k_path.hpp). The caller then calls set_device_selection()
// before begin(), and reads received() after the exchange.
//
// Price: the owners of all slices send about equally many elements, even if most large elements lie in one slice. The
// selection therefore depends on the number of ranks per host.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compression/top_k/host_selection.hpp"
#include "compression/top_k/in_host_phase.hpp"
#include "compression/top_k/residual_migration.hpp"
#include "compression/top_k/sparse_exchange.hpp"
#include "compression/top_k/tensor_residual.hpp"
#include "compression/top_k/top_k_report_builder.hpp"
#include "compression/top_k/zero_fill.hpp"
#include "execution/multi_phase_operation.hpp"
#include "planning/sparse_plan.hpp"

namespace collectives {

class TopKOperation final : public MultiPhaseOperation {
 public:
  /// `options` and `residual` belong to the tensor and must outlive the object.
  TopKOperation(const TopKOptions& options, TensorResidual& residual)
      : options_(options), residual_(residual), selection_(options) {}
  TopKOperation(const TopKOperation&) = delete;
  TopKOperation& operator=(const TopKOperation&) = delete;

  struct Call {
    const SparsePlan* plan = nullptr;
    const RankView* view = nullptr;
    const TuningParameters* tuning = nullptr;
    std::size_t rounds_in_flight = 1;  ///< Maximum number of rounds in flight.
    const float* input = nullptr;
    float* output = nullptr;
    float divisor = 1;
    std::size_t dense_bytes = 0;  ///< Number of bytes that this rank sends in a dense call.
  };

  /// Marks the tensor as busy for a call that begins later.
  void reserve() { busy_ = reserved_ = true; }
  bool busy() const noexcept { return busy_; }
  /// Starts a sparse call. Selects at once, unless the ranks of the host must add their gradients first, or a GPU has
  /// already selected.
  void begin(const Call&);
  /// Starts a dense call. Returns the vector to send in place of `input`.
  const float* dense_input(const Call&);

  bool next(Job&) override;
  bool local_work() override;
  void abandon() noexcept override;
  void released() noexcept override { busy_ = false; }

  /// Sets the entries (indices with values) that a GPU selects for the next call. They must stay valid until the call
  /// has ended. The pointers are non-null even if the selection is empty. `took`: time of the selection, for the
  /// report.
  void set_device_selection(const std::uint32_t* indices, const float* values, std::chrono::nanoseconds took);
  /// Returns the summands of the result, for a GPU that adds them.
  const SparseExchange::Result& received() { return exchange_.result(); }
  void report_device_sum(std::size_t union_size, std::chrono::nanoseconds took);

  /// Returns the figures of the last call.
  const TopKReportBuilder& report() const noexcept { return report_; }

 private:
  using Clock = TopKReportBuilder::Clock;
  enum class Phase : std::uint8_t {
    agree_to_move,
    migrate_residuals,
    move_residual,
    move_velocity,
    add_inside,
    choose,
    exchange,
    share_inside,
    agree,
    done
  };

  void start(const Call&);
  void select_on_host();
  void adopt_device_selection();
  void add_residual();
  bool next_phase(Job&);
  void keep_slice(bool moves);
  const float* clipped();
  void choose(const float* gradient, float scale);
  void send(const Entries& own, const SparseFormat& format, SparseExchange::MemberStatus status);
  void receive_status();
  void add_up();
  void undo();
  void take_back() noexcept;
  SparseFormat format() const;

  const TopKOptions& options_;
  TensorResidual& residual_;
  bool busy_ = false, reserved_ = false;
  Call call_;
  Phase phase_ = Phase::done;
  InHostPhase in_host_;
  ResidualMigration migration_;
  HostSelection selection_;
  // Entries that the GPU selects for the current or next call. Null: the CPU selects.
  Entries device_selection_;
  std::chrono::nanoseconds device_took_{};
  SparseExchange exchange_;
  ZeroFill zero_fill_;           // Sets this rank's slice of the result to zero.
  std::vector<float> gradient_;  // Vector that is sent in place of the caller's gradient.
  std::vector<float> host_sum_;  // Sum of the gradients of the host's ranks, only in this rank's slice.
  bool undo_ = false;            // True: a NaN or infinity was reported, so this call sends nothing.
  bool sent_copy_ = false;       // True: the whole residual has been taken from the state and added to gradient_.
  TopKReportBuilder report_;
};

}  // namespace collectives
