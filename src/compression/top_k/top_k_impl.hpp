// The inside of a TopK: what it keeps for every tensor, and the operation that gives it away bit by bit.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "collectives/top_k.hpp"
#include "compression/select.hpp"
#include "compression/top_k/sparse_exchange.hpp"
#include "execution/multi_phase_operation.hpp"
#include "planning/sparse_plan.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// Elements of a tensor that indices of 32 bits would not reach.
inline constexpr std::size_t kTooMany = std::size_t{1} << 32;

/// What a rank keeps of a tensor from call to call.
struct ResidualState {
  std::size_t count = 0;  ///< elements of the tensor
  std::uint64_t calls = 0;
  std::uint32_t slices = 0;     ///< that the owners of this host keep, of the sum of its ranks; 0: this rank keeps all
  Range slice;                  ///< of the tensor: what this rank chooses from
  std::vector<float> residual;  ///< of the slice; empty: all zero
  std::vector<float> velocity;  ///< likewise
  std::vector<float> pending;   ///< of the tensor, from another life: in other hands then; empty: none
};

/// Residual and velocity of a tensor, while they are not with the host.
class DeviceResidual {
 public:
  virtual ~DeviceResidual() = default;
  /// Copies of them; waits. What there is not stays as it is. Throws Error{system}.
  virtual void read(std::vector<float>& residual, std::vector<float>& velocity) = 0;
  bool returned = false;  ///< what was to be given has come back as it was, what cannot arrive with it
};

/// One tensor, and the operation on it that is under way. At most one is.
class SparseTensor final : public MultiPhaseOperation {
 public:
  SparseTensor(std::string name, const TopKOptions& options) : name_(std::move(name)), options_(options) {}

  /// What may be asked for, before anything is done. Throws Error{invalid_argument}.
  void check(std::size_t count, Rank rank) const;
  /// How many elements the next call chooses.
  std::size_t next_k(std::size_t count) const;

  struct Call {
    const SparsePlan* plan = nullptr;
    const RankView* view = nullptr;
    const Tuning* tuning = nullptr;
    std::size_t rounds_in_flight = 1;  ///< rounds of messages that may be under way at once
    const float* input = nullptr;
    float* output = nullptr;
    float divisor = 1;
    std::size_t dense_bytes = 0;  ///< that this rank sends to others where everything is sent
  };
  // Where a GPU chooses and adds (device/top_k_path.hpp), it is told so before begin(), and asks afterwards.

  const TopKOptions& options() const noexcept { return options_; }
  /// What is kept is the host's, all of `count` elements by this rank, zero where it is empty. Throws Error{system}.
  void bring_residual_to_host(std::size_t count);
  /// Likewise of this rank's slice, where keeps().
  void bring_slice_to_host(std::size_t count, int slices, Range slice);
  /// Whether it is that slice that is kept, of as many; `slices` 0: the whole. Or else the ranks of a host have to add
  /// what they keep, which begin() does with all of them if any has to.
  bool keeps(int slices, Range slice) const noexcept {
    return !options_.error_feedback ||
           (state.slices == static_cast<std::uint32_t>(slices) && (slices == 0 || state.slice == slice));
  }
  void move_residual_to_device(std::unique_ptr<DeviceResidual> where);
  /// What the next call chooses, which stays where it is until that has ended; not null, where it is nothing, too.
  void set_device_selection(const std::uint32_t* indices, const float* values, std::chrono::nanoseconds took);
  const SparseExchange::Result& received() { return exchange_.result(); }
  void report_device_sum(std::size_t union_size, std::chrono::nanoseconds took);
  /// A value as the others see it: what is too large for bf16 becomes infinite.
  float arrives(float value) const;

  /// A call is made that begins later.
  void reserve() { busy_ = reserved_ = true; }
  /// The next call chooses, now if it can.
  void begin(const Call&);
  /// The next call gives everything away: what to send in place of `input`.
  const float* dense_input(const Call&);
  bool next(Job&) override;
  bool local_work() override;
  void abandon() noexcept override;
  void released() noexcept override { busy_ = false; }
  bool busy() const noexcept { return busy_; }

  TopKReport report(bool norms) const;
  /// What is kept, wherever it is.
  ResidualState full_state() const;
  ResidualState state;
  std::unique_ptr<DeviceResidual> device_residual;  ///< has what `state` lacks; null: nothing

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
  std::vector<float> whole(std::vector<float>& of_slice) const;
  float clipping() const;
  const float* clipped();
  void choose(const float* gradient, float scale);
  void encode(const Entries& own, const SparseFormat& what, SparseExchange::MemberStatus status);
  bool next_phase(Job&);
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
  std::vector<float> gradient_;  // what is given in place of the caller's, where it is not the caller's
  std::vector<float> host_sum_;  // of the slice
  std::vector<float> moved_residual_, moved_velocity_;  // of this rank, to become those of its host: until it is done
  std::vector<std::uint32_t> indices_;                  // that this rank has chosen
  std::vector<float> values_;
  Entries device_selection_;  // of the call under way or to come; null: this rank's host chooses
  std::chrono::nanoseconds choosing_took_{};
  bool undo_ = false;                        // of NonFinite::skip: this call is to give nothing
  bool chosen_ = false, sent_copy_ = false;  // what is given has been taken from what is kept
  float skipped_ = 0, skipped_by_ = 0;       // whether to, on this rank's word and on that of all of its host
  float moves_ = 0, moved_by_ = 0;           // likewise whether what is kept has to be moved
  std::size_t cleared_ = 0;                  // elements of the slice of the output
  double sent_norm_ = 0;                     // squared, of what the last call sent
  TopKReport report_;
};

struct COLLECTIVES_HIDDEN TopK::Impl {
  explicit Impl(const TopKOptions& the_options) : options(the_options) {}
  /// How many of `count` elements the next call for `name` chooses. Throws Error{invalid_argument} where there may be
  /// none.
  std::size_t next_k(std::string_view name, std::size_t count, Rank rank) const;
  SparseTensor& tensor(std::string_view name);

  const TopKOptions options;
  std::map<std::string, std::unique_ptr<SparseTensor>, std::less<>> tensors;
};

}  // namespace collectives
