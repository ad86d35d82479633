// Zero copy: the ranks' buffers are worked on where they are, and nothing is staged.
//
// The vector is shared out among the ranks. For its share a rank loads every source once, combines in rank order, and
// stores the result to every destination: one pass, 2pN bytes for an all-reduce of N bytes over p ranks, which is the
// floor. Two meetings: all have said where their buffers are; all have done their share. With more ranks than cores the
// shares are cut into pieces that any rank takes, so that those who run do the work of those who sleep.
//
// Others' buffers are theirs again when the communicator has failed. So work goes on in pieces, each of them between
// raising a flag and taking it down, with a look at the failure in between; and whoever gives up a call waits until no
// flag is up (Watch::wait_until_untouched).
//
// *Single copy* is the same where buffers are not mapped: the kernel carries a piece between two processes. A gather
// needs no memory in between then; a reduction takes in one piece per peer, small enough to stay in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/reach.hpp"
#include "shared_memory/stage_room.hpp"

namespace collectives {

class ZeroCopy {
 public:
  enum class State { under_way, finished, unreachable };
  ZeroCopy(const StageRoom&, const Tuning&, Reach&, bool crowded);

  /// Says where this rank's buffers are. `number` counts stages. False, with nothing more to do here, where others need
  /// one that is not mapped and the task is not a single-copy one: they learn that as well.
  bool start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// `unreachable` where start() was false on another rank. Nothing has been moved then.
  State advance();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  std::uint64_t moves() const noexcept { return moves_; }  ///< ever; of pieces

 private:
  struct Peer {
    RemoteBuffer own, keep;
    std::byte *own_at = nullptr, *keep_at = nullptr;  // of element 0; null where only the kernel reaches
  };
  bool needed_by_others(int local, bool keep) const;
  bool hidden() const;
  enum class Met { not_all, all, one_hidden };
  Met meet();
  bool work();
  bool work_on_claims();
  bool perform_unless_failed(int share, Range);
  bool perform(int share, Range);
  bool perform_through_kernel(int share, Range);
  Peer& peer(int local) { return peers_[static_cast<std::size_t>(local)]; }
  const Peer& peer(int local) const { return peers_[static_cast<std::size_t>(local)]; }

  const StageRoom& room_;
  const Tuning& tuning_;
  Reach& reach_;
  const int self_, ranks_;
  const bool crowded_;

  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  std::uint64_t number_ = 0, tag_ = 0;
  enum class Phase { meeting, working, leaving } phase_ = Phase::meeting;
  int peer_ = 0;
  bool claims_ = false;
  std::uint64_t claims_before_ = 0, pieces_ = 0;  // pieces of all stages before this one, and of this one
  std::size_t piece_ = 0;                         // elements
  std::size_t done_ = 0;                          // elements of my share
  std::vector<Peer> peers_;
  std::vector<Source> sources_;
  std::vector<std::byte*> destinations_;
  std::vector<std::byte> scratch_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
