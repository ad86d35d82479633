// Top-k: only the largest elements of a gradient travel, the rest is kept and added to the next one.
//
//   collectives::TopK top_k({.density = 0.01});
//   comm.all_reduce(gradient, ReduceOp::average, {.name = "fc1", .compressor = &top_k});
//
// Every rank chooses exactly k elements of what it has to give, by magnitude, the lowest index first among equals, and
// sends their indices and values; contributions to an element are added in rank order, so all ranks end with the same
// bits. What was not sent stays in a residual of this rank (error feedback; Stich et al., "Sparsified SGD with memory",
// 2018), which belongs to the tensor's name. Momentum correction, masking, local clipping and the density warm-up are
// those of Lin et al., "Deep gradient compression", 2018.
//
// Ranks of one host add their gradients first, in full, through the memory they share, and choose from the sum, each
// its share of k from a slice of its own: between hosts it is sparse, inside it is dense. Where sending everything
// would be as fast, everything is sent, the residual with it, and report() says why.
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

/// What is done when NaN or infinity is among what a rank has to give. All ranks do the same in the same call.
enum class NonFinite : std::uint8_t {
  propagate,  ///< it is sent, as it is larger than anything else, and reaches every rank
  skip,  ///< the result is zero; residuals are as before the call, but for the others' finite gradients in them, and
         ///< without what has become too large to arrive
  abort  ///< Error{aborted} on every rank, naming tensor, index, and the rank, or the ranks of the host; residuals are
         ///< as after skip
};

/// How those who have chosen come to the sum: everyone sends everything to everyone, or everyone owns a range of the
/// tensor, adds what is chosen of it, and sends the sum to everyone, sparse or, if it is not any more, as it is.
enum class SparseForm : std::uint8_t { automatic, gathered, split };

struct TopKOptions {
  double density = 0.01;            ///< k = density * count, rounded up; in (0, 1]
  std::size_t k = 0;                ///< if not 0: exactly so many, or all of a tensor that has fewer
  bool error_feedback = true;       ///< keep what is not sent
  float momentum = 0;               ///< velocity = momentum * velocity + gradient is what is sent, in [0, 1); needs
                                    ///< error_feedback. The optimizer adds no momentum of its own then
  bool masking = true;              ///< the velocity of what was sent starts again from 0, but where everything was
  float clip = 0;                   ///< if not 0: gradients are scaled to a norm of at most clip / sqrt(ranks) each
  std::size_t warm_up_calls = 0;    ///< of each tensor, in which the density falls from warm_up_density to density,
  double warm_up_density = 0.25;    ///< by an equal factor from call to call; not with k
  DataType values = DataType::f32;  ///< what values travel as: f32, or bf16, whose rounding error stays in the residual
  NonFinite non_finite = NonFinite::propagate;
  SparseForm form = SparseForm::automatic;  ///< whatever is estimated to be faster
};

/// What the last call for a tensor did, on this rank.
struct TopKReport {
  std::uint64_t calls = 0;       ///< so far
  bool sparse = false;           ///< or everything was sent
  std::string reason;            ///< why
  std::size_t count = 0;         ///< elements of the tensor
  std::size_t chosen = 0;        ///< of them by this rank, of its slice if ranks of a host share the work
  std::size_t union_size = 0;    ///< elements to which anybody contributed, in this rank's slice
  std::uint64_t raw_bytes = 0;   ///< 2 (p - 1) / p of the tensor, which an all-reduce sends at least
  std::uint64_t sent_bytes = 0;  ///< that this rank sent of what was chosen; raw_bytes where everything was sent
  double coding_seconds = 0;     ///< choosing, writing, adding
  double residual_norm = 0;      ///< of what is kept now
  double relative_error = 0;     ///< residual_norm over the norm of all that there was to give
};

/// Calls of one name follow one another: the next may be issued when wait() or test() has told of the end of the one
/// before. Serves any number of communicators, but not two threads at once.
///
/// A call that failed counts as none that was made, and has sent nothing: what was owed is owed, and so is what of its
/// gradient had been added by then, which therefore is not to be given again. If it had already ended on other ranks,
/// what ranks keep does not fit together any more: load() what was saved.
class COLLECTIVES_EXPORT TopK {
 public:
  /// Throws Error{invalid_argument} for options that make no sense.
  explicit TopK(const TopKOptions& options = {});
  TopK(TopK&&) noexcept;
  TopK& operator=(TopK&&) noexcept;
  /// Outlives all operations that use it.
  ~TopK();

  const TopKOptions& options() const noexcept;
  /// Throws Error{invalid_argument} for a name that no call has used. `norms`: residual_norm and relative_error, too,
  /// which take a pass over the residual; else they are 0.
  TopKReport report(std::string_view name, bool norms = true) const;
  /// The names in use, ascending.
  std::vector<std::string> names() const;

  /// All that this rank keeps: residuals, velocities, numbers of calls. For checkpoints; between calls.
  std::vector<std::byte> save() const;
  /// Takes over what the ranks of a run had saved, `states[r]` that of rank r, in place of what is here. With as many
  /// ranks in as many hosts as then, calls go on bit for bit as if there had been no break. With others, rank r takes
  /// over what ranks r, r + ranks, r + 2 ranks, ... had, so that nothing that was kept is lost; velocities start again.
  /// Throws Error{invalid_argument} for what save() has not made.
  void load(std::span<const std::vector<std::byte>> states, Rank rank, int ranks);

  struct Impl;
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace collectives
