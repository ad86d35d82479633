// Intra-host collectives: the ranks of one host, or of a subgroup of it, combine and exchange data through shared
// memory. The ranks send no messages. subgroup_memory.hpp describes the subgroups.
//
// A HostTask describes one collective (host_task.hpp). All ranks of the subgroup have equal tasks. The protocol that
// performs the collective depends mainly on the size of the vector and on the location of the buffers:
//
//   inline       inline_protocol.hpp  the payload travels inside the polled cache lines
//   one-shot     staged.hpp           every rank stages its whole vector, and combines all vectors for itself
//   staged       staged.hpp           slices pass through staging memory, and their owners combine them
//   zero copy    zero_copy.hpp        ranks work in one another's buffers by pointers, if all buffers are mapped
//   single copy  zero_copy.hpp        the kernel copies between the ranks' buffers if they are not mapped
//
// Every protocol combines the ranks' values in rank order. All protocols therefore compute the same bits.
//
// All ranks count the collectives of a subgroup in the same order. Each collective needs shared memory for counters,
// buffer addresses and slots of cache lines. Each kind of this memory forms a ring of 64 places (kCollectivesAhead).
// Collective n uses the same places as collective n - 64. A rank begins collective n once all ranks have finished
// collective n - 64. For this purpose, each rank counts the collectives that it has finished (counter `finished`). In
// practice, only a rank that needs no data of its peers gets 64 collectives ahead, such as the root of many broadcasts.
//
// Price: each rank needs, per subgroup, 64 slots of cache lines (inline_protocol.hpp) and 21 KiB of counters and
// records.
//
// No function blocks: progress() does what is possible now and returns. The function start() publishes this rank's
// first data at once if the places are free. Reason: the peers wait for that data. The caller then publishes the
// arrival record: the number and the signature of the call.
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

  /// Describes a host Step, a collective of ranks of one host, in a task. The task is for start() of this object only.
  void describe(const Step&, std::size_t element_bytes, HostTask&) const;
  /// Begins a collective. The task and the operands must not change until the collective has finished.
  void start(const HostTask& task, const HostOperands& with) {
    task_ = &task;
    with_ = &with;
    ++number_;
    performer_ = Performer::none;
    root_has_other_core_ = oversubscribed_ && task.has_one_source() && note_core();
    if (place_is_free()) begin();
  }
  void start(const HostTask&, HostOperands&&) = delete;  // a temporary would not outlive the call
  /// Performs what is possible now. Returns true when the collective has finished. Throws Error{system}, or TagMismatch
  /// with the local rank of a peer that performs another call.
  bool progress() try {
    if (performer_ == Performer::inlined ? !inline_protocol_.progress() : !progress_by_others()) return false;
    finished_.store(number_, std::memory_order_release);
    return true;
  } catch (const TagMismatch& mismatch) {  // its peer is a rank of the subgroup
    throw TagMismatch{subgroup_.local(mismatch.peer)};
  }
  /// Returns whether this rank has no core of its own, and gets all values of the collective from a root that last ran
  /// on another core. A wait for such a root takes no core away from it.
  bool waits_for_other_core() const noexcept { return root_has_other_core_; }
  HostCollective(const HostCollective&) = delete;  // the protocols keep a reference to subgroup_
  HostCollective& operator=(const HostCollective&) = delete;
  /// Returns a counter that grows while a staged or zero-copy collective moves data. If the counter has grown, a
  /// waiting rank restarts its backoff.
  std::uint64_t moves() const noexcept { return staged_.moves() + zero_copy_.moves(); }
  /// Returns the number of bytes that this rank has written, since construction, to shared memory or to buffers of its
  /// peers.
  std::uint64_t bytes_shown() const noexcept {
    return inline_protocol_.bytes_shown() + staged_.bytes_shown() + zero_copy_.bytes_shown();
  }

 private:
  enum class Performer { none, inlined, staged, zero_copy };
  bool place_is_free() { return number_ <= all_finished_ + kCollectivesAhead || look_for_place(); }
  bool look_for_place();
  /// On the root, publishes the core of this thread and returns false. On other ranks, returns whether the root has
  /// published another core.
  bool note_core() noexcept;
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
  bool root_has_other_core_ = false;
  std::uint64_t number_ = 0;        // number of the current collective
  std::uint64_t all_finished_ = 0;  // number of the newest collective that all ranks are known to have finished
};

}  // namespace collectives
