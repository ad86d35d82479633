// Zero copy: ranks work directly in one another's buffers, and nothing is staged.
//
// The vector is divided into one share per rank. For its share a rank loads every source once, combines in rank order,
// and stores the result to every destination. An all-reduce of N bytes over p ranks moves 2pN bytes in this one pass,
// which is the minimum. It needs two synchronizations: all ranks have published where their buffers are, and all ranks
// have finished their shares. Oversubscribed ranks cut the shares into pieces, and any rank takes any piece. Running
// ranks then do the work of sleeping ones. These pieces are reached by pointers only.
//
// Single copy does the same if buffers are not mapped. The kernel then copies each piece between two processes. A
// gather needs no memory in between. A reduction reads one piece of each peer into scratch memory, small enough for the
// cache.
//
// Failures. A buffer belongs to its caller again when the communicator has failed. A rank therefore works in pieces. It
// raises its flag remote_access in the arena for each piece, then checks for a failure. Before a rank throws an error,
// FailureDetector::wait_for_remote_access_end() waits until no living rank has its flag raised. So no peer uses the
// buffers when the error is thrown. The wait ends after half a second per rank, and a warning then names the rank that
// has stopped in a piece.
//
// Price: one ordered store per piece. A piece is at most 128 KiB, or 1 MiB if nothing is combined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tuning_parameters.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/peer_memory.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class ZeroCopy {
 public:
  enum class State { in_progress, finished, unreachable };
  ZeroCopy(const SubgroupMemory&, const TuningParameters&, PeerMemory&, bool oversubscribed);

  /// Publishes where this rank's buffers are, for collective `number`. Returns false if peers need a buffer of this
  /// rank that is not mapped, unless the task is a single copy. The peers then learn this too, and nothing more happens
  /// here.
  bool start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs what is possible now. Returns `unreachable` if start() was false on another rank; no data has moved then.
  State progress();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  std::uint64_t moves() const noexcept { return moves_; }  ///< number of pieces done, ever

 private:
  struct Peer {
    RemoteBuffer source, destination;
    std::byte *source_at = nullptr,
              *destination_at = nullptr;  // address of element 0; null if only the kernel can copy
  };
  bool needed_by_others(int local, bool destination) const;
  bool hidden() const;
  enum class Arrivals { not_all, all, one_hidden };
  Arrivals check_arrivals();
  bool work();
  bool work_on_claims();
  bool perform_unless_failed(int share, Range);
  bool perform(int share, Range);
  bool perform_through_kernel(int share, Range);
  Peer& peer(int local) { return peers_[static_cast<std::size_t>(local)]; }
  const Peer& peer(int local) const { return peers_[static_cast<std::size_t>(local)]; }

  const SubgroupMemory& subgroup_;
  const TuningParameters& tuning_;
  PeerMemory& peer_memory_;
  const int self_, ranks_;
  const bool oversubscribed_;

  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  std::uint64_t number_ = 0, tag_ = 0;
  enum class Phase { gathering, working, leaving } phase_ = Phase::gathering;
  int peer_ = 0;
  bool claims_ = false;
  std::uint64_t claims_before_ = 0, pieces_ = 0;  // pieces of all collectives before, and of the current one
  std::size_t piece_ = 0;                         // elements
  std::size_t done_ = 0;                          // elements of this rank's share
  std::vector<Peer> peers_;
  std::vector<Source> sources_;
  std::vector<std::byte*> destinations_;
  std::vector<std::byte> scratch_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
