// Top-k compression: an all-reduce sends only the k largest elements of a gradient. The other elements are kept, and
// added to the gradient of the next call for the same tensor.
//
//   collectives::TopK top_k({.density = 0.01});
//   comm.all_reduce(gradient, ReduceOp::average, {.name = "fc1", .compressor = &top_k});
//
// Selection. A rank selects exactly k elements with the largest magnitudes, unless the ranks of a host share the
// selection (see below). Among equal magnitudes the lowest index comes first. The rank sends the indices and values of
// the selected elements. All ranks add the values of an element in the same order. Therefore, all ranks get the same
// bits.
//
// Residual. Each rank keeps the sum of its unsent values, the residual, for each name of a tensor. This method, which
// an option turns off, is called error feedback (Stich et al., "Sparsified SGD with memory", 2018). Momentum
// correction, masking, local clipping and the warm-up of the density follow Lin et al., "Deep gradient compression",
// 2018.
//
// Several hosts of several ranks. The ranks of a host first add their full gradients in shared memory. The sum is
// divided into slices, at most one for each rank. Each slice gets an equal number of the k elements. A rank selects the
// largest elements of its slice. Only the exchange between hosts is compressed. In a deterministic call, the ranks of a
// host do not add first. Every rank then selects k elements of its own gradient.
//
// Dense calls. If sending the whole gradient is estimated to be about as fast, it is sent whole, with the residual
// added. On one host the gradient is always sent whole, unless top-k is forced or the call is deterministic. report()
// states the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Reaction to a NaN or infinity in a rank's gradient. All ranks react alike in the same call.
enum class NonFinite : std::uint8_t {
  propagate,  ///< Sends the value to all ranks: it counts as larger than any other.
  /// Sets the result of the call to zero. Ranks with finite gradients keep these in their residuals. Values too large
  /// to arrive as finite values are dropped.
  skip,
  /// Throws Error{aborted} on every rank. The error names the tensor, the index, and the rank or the ranks of the host.
  /// Residuals are as after skip.
  abort
};

/// Form in which ranks exchange and add the selected elements.
///
/// gathered: every rank sends its selection to all ranks. split: every rank owns a range of the tensor. It adds the
/// selected elements of the range and sends the sum to all ranks, in sparse form while that is shorter. automatic: the
/// form that is estimated to be faster.
enum class SparseForm : std::uint8_t { automatic, gathered, split };

/// Options of a TopK. All ranks pass equal options.
struct TopKOptions {
  double density = 0.01;       ///< k = density * count, rounded up. In (0, 1].
  std::size_t k = 0;           ///< Number of elements to send. A shorter tensor is sent whole. 0: by density.
  bool error_feedback = true;  ///< Keep unsent values in the residual.
  /// Momentum correction, in [0, 1): each rank selects from velocity = momentum * velocity + gradient. Needs
  /// error_feedback. The optimizer must not add momentum of its own.
  float momentum = 0;
  bool masking = true;  ///< The velocity of sent elements restarts from 0, unless everything is sent.
  float clip = 0;       ///< If not 0: scales each gradient to a norm of at most clip / sqrt(ranks).
  /// Calls of each tensor in which the density falls from warm_up_density to density, by an equal factor per call. Not
  /// with k.
  std::size_t warm_up_calls = 0;
  double warm_up_density = 0.25;  ///< Density of a tensor's first call in the warm-up.
  /// Type of values on the wire: f32, or bf16, whose rounding error stays in the residual.
  DataType values = DataType::f32;
  NonFinite non_finite = NonFinite::propagate;
  SparseForm form = SparseForm::automatic;  ///< Form of the exchange.
};

/// Report of this rank's last call for a tensor.
struct TopKReport {
  std::uint64_t calls = 0;  ///< Number of calls so far.
  bool sparse = false;      ///< False: everything was sent.
  std::string reason;       ///< Reason for `sparse`.
  std::size_t count = 0;    ///< Number of elements of the tensor.
  /// Number of elements that this rank selected, in its slice if the ranks of a host share the work.
  std::size_t chosen = 0;
  std::size_t union_size = 0;  ///< Number of distinct indices that any rank sent, within this rank's slice.
  /// 2 (p - 1) / p of the tensor's bytes: the least that a rank sends in an all-reduce of p ranks.
  std::uint64_t raw_bytes = 0;
  std::uint64_t sent_bytes = 0;  ///< Bytes of the selections that this rank sent. raw_bytes if everything was sent.
  double coding_seconds = 0;     ///< Seconds of selecting, encoding and adding.
  double residual_norm = 0;      ///< Norm of the residual after the call. 0 if not computed.
  /// residual_norm divided by the norm of the residual and the sent values together. 0 if not computed.
  double relative_error = 0;
};

/// Compressor of the tensors of all-reduce calls. One object serves any number of communicators, but only one thread at
/// a time. Calls with the same name must not overlap: issue the next one after wait() or test() has reported the end of
/// the previous one.
///
/// Failed calls. A failed call sends nothing, is not counted, and leaves the residual valid. The part of the gradient
/// that had already been added to the residual stays there, so do not pass that gradient again. If the call had
/// completed on other ranks, the residuals of the ranks no longer match: restore them with load().
class COLLECTIVES_EXPORT TopK {
 public:
  /// Throws Error{invalid_argument} if an option is out of range, or if options contradict each other.
  explicit TopK(const TopKOptions& options = {});
  TopK(TopK&&) noexcept;
  TopK& operator=(TopK&&) noexcept;
  /// Requires that no operation uses the object.
  ~TopK();

  const TopKOptions& options() const noexcept;
  /// Returns the report of the last call for `name`. If `norms` is true, it includes residual_norm and relative_error,
  /// which take a pass over the residual.
  ///
  /// Throws Error{invalid_argument} if no call has used the name. Throws Error{system} if the residual is on a GPU that
  /// has failed.
  TopKReport report(std::string_view name, bool norms = true) const;
  /// Returns the names in use in ascending order.
  std::vector<std::string> names() const;

  /// Returns the state of this rank for a checkpoint: residuals, velocities and numbers of calls. Call it between
  /// calls. Throws Error{system} if a residual is on a GPU that has failed.
  std::vector<std::byte> save() const;
  /// Replaces the state by the states that the ranks of a run saved; `states[r]` is that of rank r.
  ///
  /// With as many ranks in as many hosts as then, the run continues bit for bit. With other numbers, rank r takes the
  /// residuals of ranks r, r + ranks, r + 2 ranks and so on. No residual is lost then, but velocities restart from 0.
  ///
  /// Throws Error{invalid_argument} if a state is not from save().
  void load(std::span<const std::vector<std::byte>> states, Rank rank, int ranks);

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace collectives
