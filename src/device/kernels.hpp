// Kernels: every rank's GPU reaches into the memory of the others, as the processors do at zero copy
// (shared_memory/zero_copy.hpp). The vector is shared out among the ranks; for its share a rank's kernel reads every
// source once, combines in rank order and writes every destination. An all-reduce of p ranks is p kernels and no copy,
// and gives the bits that one on the host gives.
//
// The ranks meet twice in the arena, where their hosts look: all have said where their buffers are, and that what was
// to come before them is done; all have said that their kernels are. So a call returns when the last GPU has finished,
// with a stream, too: the kernels of others write into this rank's output, and its stream could not wait for them.
//
// Buffers that others cannot reach (parts of a group, managed memory, memory that cannot be shared, elements that do
// not lie at multiples of their size) are laid side by side in memory of this communicator's own, and the result is
// copied back. It is as long as the longest vector that needed it, rounded up to a power of two. To give memory back
// may take waiting for the whole GPU, so what it has outgrown is kept until the end.
//
// A kernel cannot be called back. The flag that says "touches the others' buffers" is up until it is done, so whoever
// gives up a call knows (Watch::wait_until_untouched).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/peers.hpp"
#include "device/way.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/host_task.hpp"

namespace collectives {

/// On one host, where local ranks are the ranks.
class KernelsWay final : public DeviceWay {
 public:
  KernelsWay(Device& device, const Arena& arena) : device_(device), arena_(arena), peers_(device, arena) {}
  /// Waits a while for what is under way; a GPU that does not come to an end keeps the memory.
  ~KernelsWay() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 private:
  enum class Phase : std::uint8_t { coming, copying_there, meeting, working, leaving, copying_back };
  /// A rank's buffers, from where element 0 of the vector would be; null where it has none.
  struct Buffers {
    std::byte *own = nullptr, *keep = nullptr;
  };

  Turn wait_for(Turn whom, Phase phase);
  bool show_buffers();
  std::optional<RemoteBuffer> show(const std::byte* from_element_0, bool keep);
  void lay_side_by_side();
  void publish();
  bool all_have_come();
  bool all_have_worked();
  void find_buffers();
  void work();
  void touch(bool touching) noexcept;

  Device& device_;
  const Arena& arena_;
  GpuPeers peers_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
  std::vector<void*> memory_;  // for vectors side by side, the last one in use
  std::size_t bytes_ = 0;      // of that

  const DeviceCall* call_ = nullptr;
  const Job* job_ = nullptr;
  HostTask task_;
  Phase phase_ = Phase::coming;
  bool side_by_side_ = false;
  RemoteBuffer own_, keep_;
  int peer_ = 0;
  std::vector<Buffers> buffers_;  // by rank
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
