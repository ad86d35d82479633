// Host task: description of one intra-host collective and its protocol. It is equal on all ranks that perform it.
//
// The vector is divided into slices, each with one owner:
//
//   host_all_reduce      every slice is combined; all ranks want all slices
//   host_reduce_scatter  every slice is combined; its owner wants it
//   host_all_gather      every slice is its owner's; all ranks want all slices
//   host_barrier         no rank leaves before all have entered
//
// With `root`, one rank owns the whole vector. A reduce-scatter is then a reduce, and an all-gather a broadcast.
//
// Size selects the protocol, and mapped buffers permit zero copy; host_collective.hpp lists the protocols. Results that
// would evict one another from the last-level cache are stored past it (`stores`). Results that overwrite values are
// not, because their lines are cached already. A rank fences these stores only before it publishes data or has to wait.
// With a core of its own it uses no memcpy between them, because its string instructions would wait for the stores.
// Buffers that are not mapped are then staged rather than copied by the kernel, because the kernel's copy cannot store
// past the caches.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "reduction/reduction.hpp"
#include "steps/step.hpp"

namespace collectives {

enum class HostProtocol : std::uint8_t {
  inlined,     ///< inside the polled cache lines
  one_shot,    ///< every rank stages all its values and combines for itself: one synchronization
  staged,      ///< through chunks of staging memory, slice by slice
  single_copy  ///< directly between the ranks' buffers, by the kernel if they are not mapped
};
std::string_view to_string(HostProtocol) noexcept;

struct HostTask {
  Step::Kind kind = Step::Kind::host_barrier;
  int root = -1;              ///< local rank of the only owner, or -1
  std::size_t element = 1;    ///< bytes per element
  std::vector<Range> slices;  ///< by local rank
  std::size_t total = 0;      ///< elements of all slices
  std::size_t longest = 0;    ///< elements of the longest slice
  bool adjacent = true;       ///< each slice begins where the one before it ends
  HostProtocol protocol = HostProtocol::inlined;
  bool zero_copy = false;          ///< zero copy instead of the protocol, if all buffers are mapped
  Stores stores = Stores::cached;  ///< of results
  Stores stores_to_staging = Stores::cached;

  bool combines() const { return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_reduce_scatter; }
  bool every_rank_wants_all() const {
    return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_all_gather;
  }
  const Range& slice(int local) const { return slices[static_cast<std::size_t>(local)]; }
  int ranks() const { return static_cast<int>(slices.size()); }
  /// Returns true if peers need the values of `local`.
  bool shows(int local) const {
    if (root < 0) return true;
    return (local == root) != combines();
  }

  // If ranks access one another's buffers, each rank processes a share of the vector.

  /// Returns the range that spans a rank's own values, or its results if `destination`.
  Range held(int local, bool destination) const;
  /// Returns the elements that a rank processes.
  Range share(int local) const { return root < 0 ? slice(local) : part(slice(root), ranks(), local); }
  /// Returns true if the share of rank `of_share` is computed from the values of `local`.
  bool is_source(int local, int of_share) const { return combines() || local == (root < 0 ? of_share : root); }
  /// Returns true if the share of rank `of_share` belongs to the results of `local`.
  bool is_destination(int local, int of_share) const {
    return every_rank_wants_all() || local == (root < 0 ? of_share : root);
  }
};

/// Intra-host collective that is a whole call, described once for all equal calls.
struct HostCall {
  HostTask task;
  bool finish = true;
};

/// Describes a host Step for `ranks` local ranks, and chooses the protocol. Allocates only if `task` has never held as
/// many ranks.
void describe(const Step& step, std::size_t element_bytes, int ranks, bool oversubscribed, const TuningParameters&,
              HostTask& task);

/// Returns the reason for the protocol in words, with the numbers of the tuning that decided.
std::string reason(const HostTask&, bool oversubscribed, const TuningParameters&);

}  // namespace collectives
