// A call by NCCL: what goes into the stream, and when.
//
// What NCCL does as ReduceOp promises, it does itself, in one group; parts of unequal length are a broadcast or a
// reduction each. For the rest it only carries: contributions go unsummed to their owners, whose GPUs fold them in rank
// order, and results go from there to whoever wants them. That happens in rounds, because what arrives needs room. On a
// coded wire, 16-bit floats stand for f32 on the way, and an owner folds and rounds once.
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
  /// Addresses are of element 0 of the vector of the call, as if the buffers held all of it.
  struct Call {
    Collective collective = Collective::all_reduce;  ///< no barrier
    const std::byte* input = nullptr;
    std::byte* output = nullptr;
    Parts parts = {};  ///< one per rank for reduce_scatter and all_gather; else of the whole vector
    DataType type = DataType::f32;
    ReduceOp op = {};
    Rank root = 0;
    bool unsummed = false;          ///< contributions meet at their owners
    DataType wire = DataType::f32;  ///< of a coded call, whose type is f32: f16 or bf16, then also `unsummed`
    Device::Stream stream = nullptr;
    bool coded() const noexcept { return type == DataType::f32 && wire != DataType::f32; }
    DataType carried() const noexcept { return coded() ? wire : type; }
  };

  /// Where contributions meet, there is room for so many bytes of them, taken at need and kept.
  static constexpr std::size_t kScratchBytes = 32 << 20;
  NcclCollective(Device& device, std::unique_ptr<NcclComm> nccl_comm, int size, Rank self,
                 std::size_t scratch_bytes = kScratchBytes);
  /// What is under way is given up.
  ~NcclCollective();
  NcclCollective(const NcclCollective&) = delete;
  NcclCollective& operator=(const NcclCollective&) = delete;

  /// Whether calls need more scratch memory than there is. To take it may wait for the whole GPU, and what is under way
  /// there for other ranks: then nothing is when they start.
  bool takes_memory(std::span<const Call> calls) const;
  /// Begins calls, which go into one stream; what was begun before is in its own.
  void start(std::span<const Call> calls);
  /// Goes as far as it can; true when all of them are in their stream. Throws Error{system}.
  bool progress();
  NcclComm& nccl_comm() noexcept { return *nccl_comm_; }

 private:
  enum class Next : std::uint8_t { exchange, combine, keep };

  /// How a call whose contributions go unsummed uses the scratch memory.
  struct Layout {
    std::size_t segment = 0;  // elements of one part in one round
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
  /// Of the scratch memory: where the contribution of `rank` arrives, what this rank makes of them, and what it sends
  /// there, if that is coded.
  std::byte* slot(Rank rank) const;
  std::byte* result() const;
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
  const std::size_t scratch_limit_;  // bytes

  std::vector<Call> calls_;  // that are not in their stream, but for those before...
  std::size_t at_ = 0;       // ...this one,
  Call call_;                // which is this
  Next next_ = Next::exchange;
  std::size_t round_ = 0;
  Layout layout_;
  std::vector<NcclComm::Call> group_;
  std::vector<Source> sources_;

  std::vector<void*> scratch_buffers_;  // the last is in use; the others were too small, and may be in use in a stream
  std::size_t scratch_bytes_ = 0;
  Device::Event done_ = nullptr;  // with the scratch memory, which the next call waits for
};

}  // namespace collectives
