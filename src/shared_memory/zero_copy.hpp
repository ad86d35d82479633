// Zero copy: a protocol by which the ranks of one host read and write one another's buffers directly. No data passes
// through staging memory.
//
// The vector is divided into as many ranges as there are ranks. The range of a rank is called its share. In an
// all-reduce, a rank loads its share from the buffers of all ranks, and combines the values in rank order. It stores
// the result to the buffers of all ranks. All ranks together load pN bytes and store pN bytes for an all-reduce of N
// bytes over p ranks. This is the minimum. The ranks synchronize twice. Before the work, each rank waits until all
// ranks have published where their buffers are. After the work, it waits until all ranks have finished their shares.
//
// In an all-to-all, each rank copies its blocks from the buffers of its peers (block_exchange.hpp).
//
// Zero copy requires that peers can map every buffer that they access. If there are more ranks than cores, some ranks
// sleep. Shares are then divided into pieces, and any rank may take the next piece of any share. Running ranks thus do
// the work of sleeping ranks.
//
// Single copy is for buffers that are not mapped. The kernel copies each piece between two processes. A gather copies
// straight into the result. A reduction first copies a piece of each peer into scratch memory that fits into the cache.
//
// Failures. After a failure of the communicator, calls throw, and the program may free its buffers. From that time on,
// no peer may access these buffers. A rank therefore works piece by piece. Before each piece, the rank raises its flag
// remote_access in the arena, the shared memory of the host. After that, it checks for a failure. After the piece, it
// lowers the flag. A rank that throws an error first calls FailureDetector::wait_for_remote_access_end(), which waits
// until no living rank has its flag raised. The wait for one rank ends after half a second. A warning then names that
// rank, because it has stopped while it worked on a piece.
//
// Price of the flag: one ordered store per piece. A piece has at most 128 KiB, or 1 MiB if nothing is combined.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/tuning_parameters.hpp"
#include "reduction/reduction.hpp"
#include "shared_memory/block_exchange.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/peer_memory.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

class ZeroCopy {
 public:
  enum class State { in_progress, finished, unreachable };
  ZeroCopy(const SubgroupMemory&, const TuningParameters&, PeerMemory&, bool oversubscribed);
  ZeroCopy(const ZeroCopy&) = delete;  // blocks_ keeps a reference to peers_
  ZeroCopy& operator=(const ZeroCopy&) = delete;

  /// Begins collective `number`: publishes where this rank's buffers are. Returns false if peers need a buffer of this
  /// rank that they cannot map. In that case, progress() of the peers returns State::unreachable, and all callers
  /// perform the collective by another protocol. For single copy, never returns false.
  bool start(const HostTask&, const HostOperands&, std::uint64_t number);
  /// Performs the work that is possible now, without waiting. Returns `unreachable` if start() returned false on
  /// another rank. In that case, no data has been copied.
  State progress();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }
  /// Returns the number of pieces that this rank has performed since construction.
  std::uint64_t moves() const noexcept { return moves_; }

 private:
  bool needed_by_others(int local, bool destination) const;
  bool works_with(int local) const;
  bool hidden() const;
  enum class Arrivals { not_all, all, one_hidden };
  Arrivals check_arrivals();
  bool work();
  bool work_on_claims();
  bool work_on_blocks();
  /// Calls perform() while this rank's flag remote_access is raised. Returns false if the communicator has failed, or
  /// if perform() returns false because a peer has ended.
  ///
  /// This rank first raises its flag, and then checks for a failure. A peer that fails first reports the failure, and
  /// then reads the flags. Therefore either the peer sees this rank's flag, or this rank sees the failure.
  template <class Perform>
  bool unless_failed(Perform&& perform) {
    struct Flag {
      std::atomic<std::uint64_t>& value;
      explicit Flag(std::atomic<std::uint64_t>& up) : value(up) { value.store(1); }
      ~Flag() { value.store(0, std::memory_order_release); }
    };
    const Flag remote_access(subgroup_.remote_access());
    return !subgroup_.failed() && perform();
  }
  std::byte* address_of_first(int local, const RemoteBuffer&, bool destination);
  std::uint64_t pieces_of(int local) const;
  bool perform_claim(std::uint64_t index);
  bool perform_block_claim(std::uint64_t index);
  bool perform(int share, Range);
  void scan(Range);
  bool perform_through_kernel(int share, Range);
  PeerBuffers& peer(int local) { return peers_[static_cast<std::size_t>(local)]; }
  const PeerBuffers& peer(int local) const { return peers_[static_cast<std::size_t>(local)]; }

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
  bool claims_ = false;              // whether any rank may take any piece
  std::uint64_t claims_before_ = 0;  // number of pieces of all earlier collectives
  std::uint64_t pieces_ = 0;         // number of pieces of the current collective
  std::size_t piece_ = 0;            // length of a piece in elements
  std::size_t done_ = 0;             // number of elements of this rank's share that are finished
  std::vector<PeerBuffers> peers_;
  std::vector<Source> sources_;
  std::vector<std::byte*> destinations_;
  std::vector<std::byte> scratch_;
  BlockExchange blocks_;
  std::uint64_t bytes_shown_ = 0, moves_ = 0;
};

}  // namespace collectives
