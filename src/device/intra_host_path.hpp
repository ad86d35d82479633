// What ways have in common that reach into the memory of the GPUs of this host's other ranks: where buffers are, and
// how ranks meet.
//
// The ranks meet in the arena, where their hosts look: all have said where their buffers are, and that what was to come
// before them is done; all have said that their kernels are.
//
// Buffers that others cannot reach (parts of a group, managed memory, memory that cannot be shared, elements that do
// not lie at multiples of their size) are laid side by side in memory of this communicator's own, and the result is
// copied back. It is as long as the longest vector that needed it, rounded up to a power of two. To give memory back
// may take waiting for the whole GPU, so what it has outgrown is kept until the end.
//
// A kernel cannot be called back. The flag that says "touches the others' buffers" is up until it is done, so whoever
// gives up a call knows (FailureDetector::wait_for_remote_access_end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "device/gpu_peers.hpp"
#include "device/path_executor.hpp"
#include "shared_memory/arena.hpp"
#include "shared_memory/host_task.hpp"

namespace collectives {

class IntraHostPath : public PathExecutor {
 public:
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 protected:
  /// `rank`: this one's, among all. Ways of one communicator share `peers`. `sync`: where they meet.
  IntraHostPath(Device& device, const Arena& arena, std::shared_ptr<GpuPeers> peers, Rank rank,
                GpuSync GpuBlock::*sync = &GpuBlock::call)
      : device_(device), arena_(arena), rank_(rank), peers_(std::move(peers)), sync_(sync) {}
  /// Waits a while for what is under way; a GPU that does not come to an end keeps the memory.
  ~IntraHostPath() override;

  /// A rank's buffers, from where element 0 of the vector would be; null where it has none.
  struct Buffers {
    std::byte *source = nullptr, *destination = nullptr;
  };

  /// A call whose task is `task_`: `input` and `output` are addresses on the GPU.
  void begin(const DeviceCall& call, const std::byte* input, std::byte* output, std::uint64_t tag);
  /// Whether what is under way comes to its end in good time.
  bool drained() noexcept;
  /// Shows this rank's buffers, or begins to copy them to where they can be shown.
  void prepare_shared();
  /// Likewise where nobody needs to see them: pieces, and what does not lie at a multiple of its elements' size, are
  /// copied to where they are one vector.
  void prepare_local();
  /// Likewise where others may have to see any of it, some time later.
  void prepare_for_steps();
  /// `task_` is a Step of the call; these are its vectors, from element 0.
  void bind_step_buffers(const std::byte* source, std::byte* destination, std::uint64_t tag);
  /// This rank's vector, from element 0, since it came.
  const std::byte* own_input() const noexcept { return packed_ ? vector() : input_; }
  std::byte* own_output() const noexcept { return packed_ ? vector() : output_; }
  /// Whether they are there.
  bool prepared() { return !packed_ || device_.reached(done_); }
  /// `objects`: this rank cannot do it like this.
  void publish(bool objects = false);
  /// Whether all have published theirs; then `buffers_` has them. Throws TagMismatch.
  bool all_published();
  /// Then: whether any of them objects.
  bool any_objection() const noexcept;
  /// This rank's share of `task_`: reads every source once, combines in rank order and writes every destination.
  /// `unreduced`: sources are contributions. `finish_ranks`: as for fold(). Goes into the stream.
  void do_share(const ReduceOp& op, DataType type, bool unreduced, int finish_ranks);
  /// All that this rank's GPU had to do is done.
  void publish_done() noexcept;
  bool all_done();
  /// The rest of the call from then on: until all have said so, and the result is where the caller wants it.
  PathState leave();
  /// The rest of the call when the result is there.
  PathState return_result();
  /// Up before the others' buffers are touched, and down again; false, and it is down, where the call has failed.
  bool begin_remote_access() noexcept;
  void end_remote_access() noexcept;
  /// Writes `bytes` at `from` to all of `to`, but where it lies there already.
  void copy_to_all(std::span<std::byte* const> to, const std::byte* from, std::size_t bytes);
  GpuPeers& peers() noexcept { return *peers_; }
  GpuSync& sync_block(int local) const noexcept { return arena_.gpu_block(local).*sync_; }

  Device& device_;
  const Arena& arena_;
  const Rank rank_;
  Device::Stream stream_ = nullptr;
  Device::Event done_ = nullptr;
  const DeviceCall* call_ = nullptr;
  HostTask task_;
  std::vector<Buffers> buffers_;  // by local rank
  std::uint64_t moves_ = 0;
  // Of the kernel that is being put together.
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;

 private:
  bool show_buffers();
  std::optional<RemoteBuffer> show(const std::byte* from_element_0, bool destination);
  void pack_vectors();
  std::byte* vector() const noexcept { return static_cast<std::byte*>(memory_.back()); }
  void find_buffers();
  RemoteBuffer shown(const std::byte* from_element_0, bool destination);

  std::shared_ptr<GpuPeers> peers_;
  GpuSync GpuBlock::*const sync_;
  std::vector<void*> memory_;  // for vectors side by side, the last one in use
  std::size_t bytes_ = 0;      // of that
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::uint64_t tag_ = 0;
  bool packed_ = false, left_ = false, unpacking_ = false;
  RemoteBuffer own_, keep_;
  int peer_ = 0;
};

}  // namespace collectives
