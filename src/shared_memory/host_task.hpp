// Host task: the description of one collective between ranks of a host, with the protocol that performs the collective.
// All ranks that perform the collective have equal tasks.
//
// The vector is divided into slices. Each slice has one rank as its owner. There are these kinds of collectives:
//
//   host_all_reduce      the values of all ranks are combined; all ranks get all slices
//   host_reduce_scatter  the values of all ranks are combined; each owner gets its slice
//   host_all_gather      each owner contributes its slice; all ranks get all slices
//   host_barrier         no rank leaves before all have entered
//   host_all_to_all      each rank sends one block to each rank
//   host_gather          each owner contributes its slice; the root gets all slices
//   host_scatter         each owner gets its slice from the root
//   host_scan            rank l gets the combined values of ranks 0 to l; host_exclusive_scan: of ranks 0 to l - 1
//
// In an all-to-all, slice l of a rank's source contains the block for rank l. Slice l of the rank's destination
// receives the block from rank l.
//
// A host_reduce_scatter task with a root is a reduce: the root owns the whole vector, and thus gets all results. A
// host_all_gather task with a root is a broadcast: the root owns, and thus contributes, the whole vector. A protocol is
// a way in which the ranks exchange data (host_collective.hpp). The choice of the protocol depends mainly on the size
// of the vector.
//
// Streaming stores bypass the caches. Long results are written by streaming stores, because caches would evict the
// results before they are read. A reduction in place uses normal stores, because the cache holds the lines of its
// results already. After streaming stores, a rank needs a fence before it publishes data or waits. A rank with a core
// of its own calls no memcpy between streaming stores. Reason: the string instructions of memcpy wait until the stores
// have completed. A task with streaming stores does not use single copy, because the copy of the kernel cannot stream.
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
  inlined,     ///< ranks write values to the cache lines that peers poll
  one_shot,    ///< every rank stages its whole vector and combines the vectors of all ranks: one synchronization
  staged,      ///< values pass through chunks of staging memory, and owners combine their slices
  single_copy  ///< values are copied directly between the ranks' buffers; the kernel copies if they are not mapped
};
std::string_view to_string(HostProtocol) noexcept;

/// Ranges of the two blocks that this rank and a peer exchange, in three of the four buffers. The range in this rank's
/// source is not stored here. Ranges in buffers of the peer count from the beginning of the published buffer.
struct BlockRanges {
  Range incoming;          ///< in this rank's destination: the block from the peer
  Range peer_source;       ///< in the peer's source: the block for this rank
  Range peer_destination;  ///< in the peer's destination: the block from this rank
};

/// One collective between ranks of a host. In its functions, an argument `local` is the number of a rank in the
/// subgroup that performs the collective.
struct HostTask {
  Step::Kind kind = Step::Kind::host_barrier;
  int root = -1;              ///< local number of the root, which owns or holds the whole vector; -1: no root
  std::size_t element = 1;    ///< bytes per element
  std::vector<Range> slices;  ///< by local rank
  std::size_t total = 0;      ///< elements of all slices
  std::size_t longest = 0;    ///< elements of the longest slice; in an all-to-all, of the longest block of any pair
  /// Ranges of blocks by local rank, for an all-to-all in which pairs of ranks have different counts. Only this rank
  /// knows these ranges. Empty: `slices` holds the ranges for sources and destinations of all ranks.
  std::vector<BlockRanges> blocks;
  Range source_held, destination_held;  ///< fields of Blocks, if `blocks` is not empty
  bool swaps = true;                    ///< Blocks::swaps
  bool adjacent = true;                 ///< each slice begins where the one before it ends
  HostProtocol protocol = HostProtocol::inlined;
  bool zero_copy = false;                     ///< whether zero copy replaces the protocol if all buffers are mapped
  Stores stores = Stores::cached;             ///< stores that write results
  Stores stores_to_staging = Stores::cached;  ///< stores that write staging memory

  bool gathers() const { return kind == Step::Kind::host_gather; }
  bool scatters() const { return kind == Step::Kind::host_scatter; }
  bool scans() const { return collectives::scans(kind); }
  /// Returns whether all values come from the root, as in a broadcast or a scatter.
  bool has_one_source() const { return root >= 0 && !gathers() && !combines(); }
  bool has_one_owner() const { return root >= 0 && !gathers() && !scatters(); }
  bool combines() const {
    return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_reduce_scatter || scans();
  }
  bool every_rank_wants_all() const {
    return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_all_gather || scans();
  }
  /// Returns whether rank `local` copies or combines whole slices of peers, or its own slices, for itself.
  bool collects(int local) const {
    if (gathers()) return local == root;
    return scatters() || (every_rank_wants_all() && terms(local) > 0);
  }
  /// Returns the number of ranks, from 0 on, whose values rank `local` combines.
  int terms(int local) const {
    return kind == Step::Kind::host_scan ? local + 1 : kind == Step::Kind::host_exclusive_scan ? local : ranks();
  }
  bool deals() const { return kind == Step::Kind::host_all_to_all; }
  const Range& slice(int local) const { return slices[static_cast<std::size_t>(local)]; }
  /// Returns the range of an all-to-all's destination for the block from `local`.
  const Range& incoming(int local) const {
    return blocks.empty() ? slice(local) : blocks[static_cast<std::size_t>(local)].incoming;
  }
  int ranks() const { return static_cast<int>(slices.size()); }
  /// Returns true if peers need the values of rank `local`.
  bool shows(int local) const {
    if (scans()) return local < ranks() - 1;
    if (gathers()) return local != root;
    if (root < 0) return true;
    return (local == root) != combines();
  }
  /// Returns true if rank `local` needs the values of rank `of`, a peer that shows them.
  bool needs(int local, int of) const { return scans() ? of < terms(local) : !gathers() || local == root; }

  // In zero copy and single copy, each rank has one share of the vector to work on. The share is the rank's slice, or
  // an equal part of the vector if the task has a root.

  /// Returns the range of elements that a rank's source buffer holds. If `destination` is true, returns the range of
  /// the rank's destination buffer instead.
  Range held(int local, bool destination) const;
  /// Returns the elements of the source or destination of rank `local` that rank `self` may access. The range begins
  /// with the buffer that `local` has published, and counts as the ranges of that buffer that `self` knows.
  Range accessible(int self, int local, bool destination) const;
  /// Returns a rank's share, as a range of elements.
  Range share(int local) const { return has_one_owner() ? part(slice(root), ranks(), local) : slice(local); }
  /// Returns true if the share of rank `of_share` is computed from the values of `local`.
  bool is_source(int local, int of_share) const {
    return combines() || local == (root < 0 || gathers() ? of_share : root);
  }
  /// Returns true if the share of rank `of_share` belongs to the results of `local`.
  bool is_destination(int local, int of_share) const {
    if (scans()) return terms(local) > 0;
    return every_rank_wants_all() || local == (root < 0 || scatters() ? of_share : root);
  }
};

/// Intra-host collective that is a whole call, described once for all equal calls.
struct HostCall {
  HostTask task;
  bool finish = true;
};

/// Describes a host Step for `ranks` local ranks, and chooses the protocol. Allocates memory only if `task` has never
/// described as many ranks.
void describe(const Step& step, std::size_t element_bytes, int ranks, bool oversubscribed, const TuningParameters&,
              HostTask& task);

/// Returns the reason for the protocol in words, with the numbers of the tuning that decided.
std::string reason(const HostTask&, bool oversubscribed, const TuningParameters&);

}  // namespace collectives
