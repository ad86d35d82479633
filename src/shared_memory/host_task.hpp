// What the ranks of one host are to do together in one host stage, and by which protocol. Everything here is equal on
// all of them.
//
// The vector is divided into slices, one owner each:
//
//   host_all_reduce      every slice is combined; all want all of them
//   host_reduce_scatter  every slice is combined; its owner wants it
//   host_all_gather      every slice is its owner's; all want all of them
//   host_barrier         nobody leaves before all have come
//
// With `only`, one rank owns everything: a reduce-scatter is then a reduce, an all-gather a broadcast.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/plan.hpp"
#include "reduction/reduction.hpp"
#include "steps/step.hpp"

namespace collectives {

enum class HostProtocol : std::uint8_t {
  lines,       ///< inside the polled cache lines
  one_shot,    ///< everybody shows everything and combines everything for itself: one meeting
  staged,      ///< through chunks of staging memory, slice by slice
  single_copy  ///< straight between the ranks' buffers, by the kernel where they are not mapped
};
std::string_view to_string(HostProtocol) noexcept;

struct HostTask {
  Step::Kind kind = Step::Kind::host_barrier;
  int only = -1;              ///< local rank of the one owner, or -1
  std::size_t element = 1;    ///< bytes
  std::vector<Range> slices;  ///< by local rank
  std::size_t total = 0;      ///< elements of all slices
  std::size_t longest = 0;    ///< elements of the longest
  bool adjacent = true;       ///< each slice begins where the one before it ends
  HostProtocol protocol = HostProtocol::lines;
  bool zero_copy = false;          ///< or straight between the ranks' buffers, where all of them are mapped
  Stores stores = Stores::cached;  ///< of results
  Stores stores_to_staging = Stores::cached;

  bool combines() const { return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_reduce_scatter; }
  bool everyone_wants_all() const { return kind == Step::Kind::host_all_reduce || kind == Step::Kind::host_all_gather; }
  const Range& slice(int local) const { return slices[static_cast<std::size_t>(local)]; }
  int ranks() const { return static_cast<int>(slices.size()); }
  /// Whether a rank's values are needed by others.
  bool shows(int local) const {
    if (only < 0) return true;
    return (local == only) != combines();
  }

  // Where ranks reach into one another's buffers, each of them sees to a share of the vector.

  /// The elements that a rank's own values, or its results (`keep`), consist of.
  Range held(int local, bool keep) const;
  /// The elements that a rank sees to.
  Range share(int local) const { return only < 0 ? slice(local) : part(slice(only), ranks(), local); }
  /// Whether the share of rank `of_share` is made from the values of `local`, and whether it is among its results.
  bool is_source(int local, int of_share) const { return combines() || local == (only < 0 ? of_share : only); }
  bool is_destination(int local, int of_share) const {
    return everyone_wants_all() || local == (only < 0 ? of_share : only);
  }
};

/// A host Step on its own, described once for all calls that consist of it.
struct HostCall {
  HostTask task;
  bool finish = true;
};

/// Describes a host Step for `ranks` local ranks, and picks the protocol. Allocates only when `task` has never seen as
/// many ranks.
void describe(const Step& step, std::size_t element_bytes, int ranks, bool crowded, const Tuning&, HostTask& task);

/// Why it has its protocol, in words, with the numbers of the tuning that decided.
std::string reason(const HostTask&, bool crowded, const Tuning&);

}  // namespace collectives
