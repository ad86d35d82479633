// Implementation of TopK: the residual state of each tensor, and the operation that sends part of it. The residual is
// the part of gradients that was not sent yet.
//
// A call has one of two forms. begin() starts a sparse call, which sends k selected elements. dense_input() starts a
// dense call, which sends the residual and the gradient in full. sparse_phases.cpp describes the phases.
//
// A GPU can select and add in place of the host (device/top_k_path.hpp). The device path then calls
// set_device_selection() before begin(), and reads received() after the exchange.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "collectives/top_k.hpp"
#include "compression/select.hpp"
#include "compression/top_k/sparse_exchange.hpp"
#include "core/tuning_parameters.hpp"
#include "execution/multi_phase_operation.hpp"
#include "planning/sparse_plan.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Limit of a tensor's element count, because indices have 32 bits.
inline constexpr std::size_t kTooMany = std::size_t{1} << 32;

/// State of a tensor that a rank keeps between calls.
struct ResidualState {
  std::size_t count = 0;  ///< Number of elements of the tensor.
  std::uint64_t calls = 0;
  /// Number of slices among the ranks of this host. Each owner keeps the state of its slice of the host's sum. 0: the
  /// state belongs to this rank alone and covers the whole tensor.
  std::uint32_t slices = 0;
  Range slice;                  ///< Range of the tensor from which this rank selects.
  std::vector<float> residual;  ///< Residual of the slice. Empty: all zeros.
  std::vector<float> velocity;  ///< Velocity of the slice. Empty: all zeros.
  /// Residual of the whole tensor, loaded from a run with a different number of ranks. Empty: none.
  std::vector<float> pending;
};

/// Residual and velocity of a tensor in memory other than the host's.
class DeviceResidual {
 public:
  virtual ~DeviceResidual() = default;
  /// Copies the residual and the velocity to the host. Blocks until the copies are complete. Leaves an argument
  /// unchanged if there is no such vector. Throws Error{system}.
  virtual void read(std::vector<float>& residual, std::vector<float>& velocity) = 0;
  /// True: a failed call has returned its entries to the residual, including values that the wire type cannot
  /// represent.
  bool returned = false;
};

/// State of one tensor, and its current operation. A tensor has at most one operation at a time.
class SparseTensor final : public MultiPhaseOperation {
 public:
  SparseTensor(std::string name, const TopKOptions& options) : name_(std::move(name)), options_(options) {}

  /// Checks the arguments of a call. Throws Error{invalid_argument}.
  void check(std::size_t count, Rank rank) const;
  /// Returns the number of elements that the next call selects.
  std::size_t next_k(std::size_t count) const;

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

  const TopKOptions& options() const noexcept { return options_; }
  /// Moves the residual state to the host. This rank then keeps all `count` elements; missing values are zeros. Throws
  /// Error{system}.
  void bring_residual_to_host(std::size_t count);
  /// Moves the residual state of this rank's slice to the host. Requires keeps(slices, slice).
  void bring_slice_to_host(std::size_t count, int slices, Range slice);
  /// Returns true if the state covers `slice`, one of `slices` slices. `slices` 0 stands for the whole tensor. If it
  /// returns false on any rank of a host, begin() adds the states of all ranks of the host.
  bool keeps(int slices, Range slice) const noexcept {
    return !options_.error_feedback ||
           (state.slices == static_cast<std::uint32_t>(slices) && (slices == 0 || state.slice == slice));
  }
  void move_residual_to_device(std::unique_ptr<DeviceResidual> where);
  /// Sets the entries that a GPU selects for the next call. They must stay valid until the call has ended. The pointers
  /// are non-null even if the selection is empty.
  void set_device_selection(const std::uint32_t* indices, const float* values, std::chrono::nanoseconds took);
  const SparseExchange::Result& received() { return exchange_.result(); }
  void report_device_sum(std::size_t union_size, std::chrono::nanoseconds took);
  /// Returns the value as the other ranks receive it: rounded to the type in which it is sent. A value that exceeds the
  /// range of bf16 becomes infinite.
  float arrives(float value) const {
    return options_.values == DataType::bf16 ? static_cast<float>(bfloat16(value)) : value;
  }

  /// Marks the tensor as busy for a call that begins later.
  void reserve() { busy_ = reserved_ = true; }
  /// Starts a sparse call. Selects at once, unless the ranks of the host must add first or a GPU has selected.
  void begin(const Call&);
  /// Starts a dense call. Returns the vector to send in place of `input`.
  const float* dense_input(const Call&);
  bool next(Job&) override;
  bool local_work() override;
  void abandon() noexcept override;
  void released() noexcept override { busy_ = false; }
  bool busy() const noexcept { return busy_; }

  TopKReport report(bool norms) const;
  /// Returns the residual state, and copies it from the GPU if it is there.
  ResidualState full_state() const;
  ResidualState state;
  /// Residual and velocity that `state` lacks. Null: `state` is complete.
  std::unique_ptr<DeviceResidual> device_residual;

 private:
  using Clock = std::chrono::steady_clock;
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

  void begin_here();
  void keep_for_rank();
  void keep_for_host();
  void keep_slice(int slices, Range slice);
  void fetch_residual();
  float clipping() const;
  const float* clipped();
  void choose(const float* gradient, float scale);
  void encode(const Entries& own, const SparseFormat& what, SparseExchange::MemberStatus status);
  bool next_phase(Job&);
  bool start_phase(Job&, const Algorithm&, std::size_t count, int parts, const float* input, float* output);
  void receive_status();
  void clear_result(std::size_t count);
  void add_up();
  void undo();
  void take_back() noexcept;
  void drop_unrepresentable(ResidualState& of) const noexcept;
  void add_time(Clock::time_point from);
  void begin_report();
  SparseFormat format() const;

  const std::string name_;
  const TopKOptions options_;
  bool busy_ = false, reserved_ = false;
  Call call_;
  Phase phase_ = Phase::done;
  Plan phase_plan_;
  Selector selector_;
  SparseExchange exchange_;
  std::vector<float> gradient_;  // Vector that is sent in place of the caller's gradient.
  std::vector<float> host_sum_;  // Sum of the host's ranks in this rank's slice.
  // Residual and velocity of this rank. They are kept until the call that moves them to the owners of slices has ended.
  std::vector<float> moved_residual_, moved_velocity_;
  std::vector<std::uint32_t> indices_;  // Entries that this rank has selected.
  std::vector<float> values_;
  // Entries that the GPU selects for the current or next call. Null: the host selects.
  Entries device_selection_;
  std::chrono::nanoseconds choosing_took_{};
  bool undo_ = false;  // True: a NaN or infinity was reported, so this call sends nothing.
  // True: entries, or the whole residual, have been taken from `state`.
  bool chosen_ = false, sent_copy_ = false;
  float skipped_ = 0, skipped_by_ = 0;  // Flag to skip the call: this rank's, and the sum over the host.
  float moves_ = 0, moved_by_ = 0;      // Flag to move the residual: this rank's, and the sum over the host.
  std::size_t cleared_ = 0;             // Number of elements of the output's slice that are zero already.
  double sent_norm_ = 0;                // Squared norm of the values that the last call sent.
  TopKReport report_;
};

struct COLLECTIVES_HIDDEN TopK::Impl {
  explicit Impl(const TopKOptions& the_options) : options(the_options) {}
  /// Returns the number of elements that the next call for `name` selects. Throws Error{invalid_argument} if that call
  /// is not allowed.
  std::size_t next_k(std::string_view name, std::size_t count, Rank rank) const;
  SparseTensor& tensor(std::string_view name);

  const TopKOptions options;
  std::map<std::string, std::unique_ptr<SparseTensor>, std::less<>> tensors;
};

}  // namespace collectives
