// Block exchange: copies the blocks of an all-to-all between the buffers of ranks of one host. A block contains
// elements that one rank sends to another.
//
// Zero copy and single copy (zero_copy.hpp) use this class. These protocols synchronize the ranks, divide blocks into
// parts, and call exchange() for each part.
//
// A rank works in place if its source buffer is also its destination buffer. If each rank has a core, the work is
// divided as follows. A rank that does not work in place copies the blocks that it receives. If its peer works in
// place, the rank first copies the peer's block, and then writes its own block to the peer. If both ranks work in
// place, each swaps one half of the two blocks through scratch memory. If ranks are oversubscribed (more ranks than
// cores), any rank may exchange a part of any pair of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shared_memory/host_task.hpp"
#include "shared_memory/peer_memory.hpp"
#include "shared_memory/subgroup_memory.hpp"

namespace collectives {

/// Source and destination buffer of one rank of the subgroup in a zero-copy or single-copy collective.
struct PeerBuffers {
  RemoteBuffer source, destination;
  /// Addresses at which this process sees element 0 of the source and of the destination. Null: this process has not
  /// mapped the buffer, so only the kernel can copy.
  std::byte *source_at = nullptr, *destination_at = nullptr;
};

class BlockExchange {
 public:
  /// `peers`: buffers by local rank, which the caller keeps up to date.
  BlockExchange(const SubgroupMemory& subgroup, PeerMemory& peer_memory, const std::vector<PeerBuffers>& peers)
      : subgroup_(subgroup), peer_memory_(peer_memory), peers_(peers), self_(subgroup.self()) {}

  /// Begins a collective. `any_rank`: whether any rank may exchange the blocks of any two ranks.
  void start(const HostTask& task, bool any_rank) noexcept {
    task_ = &task;
    any_rank_ = any_rank;
  }
  /// Returns whether rank `local` has one buffer as source and destination.
  bool in_place(int local) const {
    return task_->swaps && peer(local).source.address == peer(local).destination.address;
  }
  /// Returns the part of the blocks between this rank and another on which this rank works.
  Range share(int other) const;
  /// Moves a part of the blocks between two ranks. Requires that `a` is this rank unless any rank may work. Moves only
  /// the block for `a` if each rank moves the blocks that it receives. Returns false if a peer has ended.
  bool exchange(int a, int b, Range part);

 private:
  /// Place of elements in a buffer of rank `local`, counted as that rank's ranges are.
  struct Spot {
    int local;
    bool destination;
    std::size_t first;
  };
  const PeerBuffers& peer(int local) const { return peers_[static_cast<std::size_t>(local)]; }
  Range outgoing(int local, int to) const;
  Range incoming(int local, int from) const;
  bool swap(int a, int b, Range part);
  Spot source_spot(int local, int to, const Range& part) const;
  Spot destination_spot(int local, int from, const Range& part) const;
  std::byte* pointer_to(const Spot&) const;
  std::uint64_t address_of(const Spot&) const;
  bool load(std::byte* to, const Spot& from, std::size_t bytes);
  bool store(const Spot& to, const std::byte* from, std::size_t bytes);
  bool move(const Spot& to, const Spot& from, std::size_t bytes);

  const SubgroupMemory& subgroup_;
  PeerMemory& peer_memory_;
  const std::vector<PeerBuffers>& peers_;
  const int self_;
  const HostTask* task_ = nullptr;
  bool any_rank_ = false;
  std::vector<std::byte> scratch_;  // part of a block that is being swapped
  std::vector<std::byte> bounced_;  // bytes between two buffers that are not mapped
};

}  // namespace collectives
