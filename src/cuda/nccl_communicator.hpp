// nccl::Communicator: owns a communicator of NCCL, NVIDIA's library for collectives between GPUs. It implements the
// interface NcclComm (device/nccl_comm.hpp), by which the core library uses NCCL.
//
// NCCL runs in its non-blocking mode: a call of NCCL may return before it has completed. While NCCL reports "in
// progress", ready() returns false. Until ready() returns true, the caller must start no other call, and must put no
// other work into the same stream. The function stop() aborts the communicator, which also ends NCCL's kernels on the
// GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/nccl_library.hpp"
#include "device/nccl_comm.hpp"

namespace collectives::nccl {

/// Type and number of the NCCL elements for one element of this library. NCCL lacks some types of this library. An
/// element of such a type becomes `times` bytes, or 2 floats if it is a complex number.
struct Elements {
  ncclDataType_t type;
  std::size_t times = 1;
};
Elements elements_of(DataType type);

class Communicator final : public NcclComm {
 public:
  /// Starts to connect to the other members. ready() returns true when the connection is complete.
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
  /// If `result` is a failure, aborts the communicator and throws Error{system}.
  void check(ncclResult_t result, const char* what);
  ncclResult_t put(const Call& call, ncclRedOp_t op, cudaStream_t stream) const;
  /// Returns the NCCL op for `call`. If the op has a factor, creates a new NCCL op.
  ncclRedOp_t op_of(const Call& call);

  const Library& library_;
  ncclComm_t comm_ = nullptr;
  // Communicator from which this one is still being split. Otherwise null.
  Communicator* parent_ = nullptr;
  bool stopped_ = false, left_ = false;
  std::vector<ncclRedOp_t> made_;  // Ops that were created for calls in progress.
};

/// Implementation of Nccl by a loaded library.
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
