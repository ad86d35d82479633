// Intra-host collectives: the ranks of one host, or of a subgroup of it, combine and exchange data through shared
// memory. They send no messages. subgroup_memory.hpp describes the subgroups.
//
// All ranks of the subgroup describe the collective with equal HostTasks (host_task.hpp). The size of the vector and
// the location of the buffers decide which protocol performs it:
//
//   inline       inline_protocol.hpp  the payload travels inside the polled cache lines
//   one-shot     staged.hpp           every rank stages its whole vector, and combines all of them for itself
//   staged       staged.hpp           slices pass through staging memory, and their owners combine them
//   zero copy    zero_copy.hpp        ranks work in one another's buffers by pointers, if all buffers are mapped
//   single copy  zero_copy.hpp        the kernel copies between the ranks' buffers if they are not mapped
//
// Every protocol adds contributions in rank order. An intra-host collective is therefore always deterministic.
//
// Collectives are numbered, equally on all ranks. The state of a collective lies in one of kCollectivesAhead = 64
// places of a ring. A rank begins a collective only after all ranks have finished the one that used its place before.
// No data is acknowledged. If all ranks wait for all ranks, the place is always free. A root that waits for no rank may
// run 64 collectives ahead, and in staging as far as its ring reaches.
//
// Price: 64 slots of lines and 20 KiB of counters for each rank and subgroup.
//
// No function blocks: progress() does what is possible now and returns. start() publishes the first data of this rank
// at once. The caller writes its arrival record afterwards, because the peers wait for the data. The record holds the
// number of the call and its signature.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/tuning_parameters.hpp"
#include "shared_memory/inline_protocol.hpp"
#include "shared_memory/peer_memory.hpp"
#include "shared_memory/staged.hpp"
#include "shared_memory/zero_copy.hpp"

namespace collectives {

class HostCollective {
 public:
  /// `oversubscribed`: there are more ranks than cores. The arena, the tuning and the peer memory must outlive this
  /// object.
  HostCollective(SubgroupMemory, const TuningParameters&, PeerMemory&, bool oversubscribed);

  /// Describes a host Step as a task for later start() calls on this object.
  void describe(const Step&, DataType, HostTask&) const;
  /// Begins a collective. The task and the operands must not change until it has finished.
  void start(const HostTask& task, const HostOperands& with) {
    task_ = &task;
    with_ = &with;
    ++number_;
    performer_ = Performer::none;
    if (place_is_free()) begin();
  }
  void start(const HostTask&, HostOperands&&) = delete;  // a temporary would not outlive the call
  /// Performs what is possible now. Returns true when the collective has finished. Throws TagMismatch with a local rank
  /// of the host, or Error{system}.
  bool progress() try {
    if (performer_ == Performer::inlined ? !inline_protocol_.progress() : !progress_by_others()) return false;
    finished_.store(number_, std::memory_order_release);
    return true;
  } catch (const TagMismatch& mismatch) {  // with a rank of the subgroup
    throw TagMismatch{subgroup_.local(mismatch.peer)};
  }
  HostCollective(const HostCollective&) = delete;  // the protocols keep a reference to subgroup_
  HostCollective& operator=(const HostCollective&) = delete;
  /// Returns a counter that changes when a part of a long collective has completed. A waiting rank then restarts its
  /// backoff.
  std::uint64_t moves() const noexcept { return staged_.moves() + zero_copy_.moves(); }
  /// Returns the bytes that this rank has ever written to shared memory or to buffers of its peers.
  std::uint64_t bytes_shown() const noexcept {
    return inline_protocol_.bytes_shown() + staged_.bytes_shown() + zero_copy_.bytes_shown();
  }

 private:
  enum class Performer { none, inlined, staged, zero_copy };
  bool place_is_free() { return number_ <= all_finished_ + kCollectivesAhead || look_for_place(); }
  bool look_for_place();
  void begin();
  void begin_as_planned();
  bool progress_by_others();

  const SubgroupMemory subgroup_;
  const TuningParameters& tuning_;
  const bool oversubscribed_;
  std::atomic<std::uint64_t>& finished_;
  InlineProtocol inline_protocol_;
  Staged staged_;
  ZeroCopy zero_copy_;

  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  Performer performer_ = Performer::none;
  std::uint64_t number_ = 0;        // of the current collective
  std::uint64_t all_finished_ = 0;  // number of the newest collective that all ranks are known to have finished
};

}  // namespace collectives
