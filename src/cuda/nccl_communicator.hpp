// NCCL's communicator as an NcclComm (device/nccl_comm.hpp).
//
// NCCL is told not to block. What it then calls "in progress" is what is not ready; only when it is may something
// else be begun, or be put into the same stream behind it. To give up is to abort, which gets NCCL's kernels off the
// device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/nccl_library.hpp"
#include "device/nccl_comm.hpp"

namespace collectives::nccl {

ncclDataType_t type_of(DataType type);

class Communicator final : public NcclComm {
 public:
  /// Begins to meet the others.
  Communicator(const Library& library, int size, const ncclUniqueId& id, Rank rank);
  ~Communicator() override;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void start(std::span<const Call> calls, void* stream) override;
  bool ready() override;
  std::unique_ptr<NcclComm> split(int color, int key) override;
  void leave() override;
  void stop() noexcept override;
  void* register_memory(void* memory, std::size_t bytes) override;
  void deregister_memory(void* handle) override;

 private:
  explicit Communicator(const Library& library) : library_(library) {}
  void check_usable() const;
  /// Gives up if `result` is a failure. Throws Error{system}.
  void check(ncclResult_t result, const char* what);
  ncclResult_t put(const Call& call, ncclRedOp_t op, cudaStream_t stream) const;
  /// The op of `call`, made if NCCL has to be told its factor.
  ncclRedOp_t op_of(const Call& call);

  const Library& library_;
  ncclComm_t comm_ = nullptr;
  Communicator* parent_ = nullptr;  // which this one is still being split from
  bool stopped_ = false, left_ = false;
  std::vector<ncclRedOp_t> made_;  // ops of calls that are not ready
};

/// `library` as the rest of the library knows it.
class Loaded final : public Nccl {
 public:
  explicit Loaded(const Library& library) : library_(library) {}
  int major() const noexcept override { return library_.version / 10'000; }
  std::string description() const override;
  std::string new_id() const override;
  std::unique_ptr<NcclComm> join(int size, const std::string& id, Rank rank) const override;
  bool has_memory() const noexcept override { return library_.has_memory; }
  void* allocate(std::size_t bytes) const override;
  void free(void* memory) const noexcept override { library_.MemFree(memory); }

 private:
  const Library& library_;
};

}  // namespace collectives::nccl
