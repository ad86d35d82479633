// NcclCollective: performs collectives on GPU memory with NCCL, NVIDIA's library of collectives between GPUs.
//
// NCCL performs a whole call if the call reduces nothing, or if NCCL computes the result that ReduceOp promises. A
// collective of NCCL needs parts of equal length. If only the last part is longer, one more broadcast or reduction
// handles its additional elements. If the lengths differ in another manner, one broadcast or reduction handles each
// part.
//
// In all other reductions, NCCL only moves data. Each rank owns a part of the vector. A contribution is the unreduced
// input of a rank. For each part, every rank sends its contribution to the owner. The owner's GPU combines the
// contributions in rank order, as the CPU does for CPU memory. The owners send the sums to the ranks that receive the
// result. The scratch memory for contributions is limited. A long call therefore works in rounds, and each round
// processes other elements. If the call uses a codec, ranks send f32 values as 16-bit floats, and the owner rounds the
// sum only once.
//
// Price: with p ranks, each rank sends p - 1 messages with contributions, and needs scratch memory. NCCL's own
// reduction needs neither these messages nor the scratch memory, but rounds differently.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "device/nccl_comm.hpp"
#include "planning/device_capabilities.hpp"
#include "steps/parts.hpp"

namespace collectives {

class NcclCollective {
 public:
  /// One call. Addresses are those of element 0 of the vector, as if the buffers held the whole vector.
  struct Call {
    Collective collective = Collective::all_reduce;  ///< Any collective except barrier.
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    /// Parts of the vector. reduce_scatter and all_gather: one per rank. Otherwise: one, the whole vector.
    Parts parts = {};
    DataType type = DataType::f32;
    ReduceOp op = {};
    Rank root = 0;
    bool unsummed = false;  ///< True: contributions go unreduced to the owners of parts.
    /// Type on the wire. It differs from `type` in a coded call: f16 or bf16 for f32. A coded call is also `unsummed`.
    DataType wire = DataType::f32;
    Device::Stream stream = nullptr;
    bool coded() const noexcept { return type == DataType::f32 && wire != DataType::f32; }
    DataType carried() const noexcept { return coded() ? wire : type; }
  };

  /// Default limit of the scratch memory, in bytes. The memory is allocated on demand and kept.
  static constexpr std::size_t kScratchBytes = 32 << 20;
  NcclCollective(Device& device, std::unique_ptr<NcclComm> nccl_comm, int size, Rank self,
                 std::size_t scratch_bytes = kScratchBytes);
  /// Gives up calls that are in progress.
  ~NcclCollective();
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  /// Returns true if the calls need more scratch memory than there is. In that case, the calls may start only while no
  /// operation is in progress. Allocation may wait for all work of the GPU, including work that waits for other ranks.
  bool takes_memory(std::span<const Call> calls) const;
  /// Starts calls, which go into one stream. Requires that all earlier calls are entirely in their stream.
  void start(std::span<const Call> calls);
  /// Advances the calls. Returns true if all of them are in their stream. Throws Error{system}.
  bool progress();
  NcclComm& nccl_comm() noexcept { return *nccl_comm_; }

 private:
  enum class Next : std::uint8_t { exchange, combine, keep };

  /// Layout of the scratch memory of an unsummed call.
  struct Layout {
    std::size_t segment = 0;  // Number of elements of one part in one round.
    std::size_t slot_bytes = 0, slots = 0;
    std::size_t rounds = 1;
    std::size_t bytes() const noexcept { return slots * slot_bytes; }
  };
  Layout layout_of(const Call& call) const;
  std::size_t scratch_bytes_for(std::span<const Call> calls) const;
  void begin(const Call& call);
  static bool whole(const Call& call) noexcept;
  void put_whole();
  void exchange();
  void combine();
  void keep();
  Parts parts_of_round() const;
  /// Returns the address of the contribution of `rank` in the scratch memory.
  std::byte* slot(Rank rank) const;
  /// Returns the address of this rank's sum in the scratch memory.
  std::byte* result() const;
  /// Returns the address of the coded contribution for `rank` in the scratch memory.
  std::byte* coded(Rank rank) const;
  std::byte* scratch(std::size_t index) const {
    return static_cast<std::byte*>(scratch_buffers_.back()) + index * layout_.slot_bytes;
  }
  void grow_scratch(std::size_t bytes);
  void add(NcclComm::Kind kind, const void* input, void* output, std::size_t count, Rank rank);
  std::size_t element() const noexcept { return size_of(call_.type); }
  DataType carried() const noexcept { return call_.carried(); }

  Device& device_;
  std::unique_ptr<NcclComm> nccl_comm_;
  const int size_;
  const Rank self_;
  const std::size_t scratch_limit_;  // Limit in bytes.

  std::vector<Call> calls_;  // Calls of the last start().
  std::size_t at_ = 0;       // Index of the first call that is not yet in the stream.
  Call call_;                // Copy of calls_[at_].
  Next next_ = Next::exchange;
  std::size_t round_ = 0;
  Layout layout_;
  std::vector<NcclComm::Call> group_;
  std::vector<Source> sources_;

  // Allocations. The last one is in use. Earlier ones were too small, and streams may use them.
  std::vector<void*> scratch_buffers_;
  std::size_t scratch_bytes_ = 0;
  // Event after the last use of the scratch memory. The next call waits for it.
  Device::Event done_ = nullptr;
};

}  // namespace collectives
