// Implementation of nccl::Communicator, which owns one communicator of NCCL. NCCL is NVIDIA's library for collectives
// between GPUs.
//
// NCCL runs in its non-blocking mode. A call of NCCL only starts its work and may return "in progress". The function
// ready() returns whether that call has completed. A failed communicator is aborted.
#include "cuda/nccl_communicator.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "collectives/error.hpp"

namespace collectives::nccl {
namespace {

constexpr std::chrono::milliseconds kPatienceWithAborts{200};

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Aborts an NCCL communicator in a new thread, because ncclCommAbort() may block if a GPU no longer answers. Waits at
/// most 200 ms for this thread. NCCL usually needs less time, and a longer wait would delay the peers.
void abort_aside(const Library& library, ncclComm_t comm) noexcept {
  struct Ending {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
  };
  try {
    const auto ending = std::make_shared<Ending>();
    std::thread([ending, &library, comm] {  // The library is never unloaded.
      library.CommAbort(comm);
      const std::lock_guard lock(ending->mutex);
      ending->over = true;
      ending->changed.notify_all();
    })
        .detach();
    std::unique_lock lock(ending->mutex);
    ending->changed.wait_for(lock, kPatienceWithAborts, [&] { return ending->over; });
  } catch (const std::exception&) {  // No thread could be created.
    library.CommAbort(comm);
  }
}

}  // namespace

Elements elements_of(DataType type) {
  switch (type) {
    case DataType::f32: return {ncclFloat32};
    case DataType::f64: return {ncclFloat64};
    case DataType::f16: return {ncclFloat16};
    case DataType::bf16: return {ncclBfloat16};
    case DataType::i8: return {ncclInt8};
    case DataType::u8: return {ncclUint8};
    case DataType::i32: return {ncclInt32};
    case DataType::u32: return {ncclUint32};
    case DataType::i64: return {ncclInt64};
    case DataType::u64: return {ncclUint64};
    case DataType::complex64: return {ncclFloat32, 2};
    case DataType::complex128: return {ncclFloat64, 2};
    case DataType::boolean:
    case DataType::i16:
    case DataType::u16:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
    case DataType::f32_index:
    case DataType::f64_index:
    case DataType::i64_index:
    case DataType::i32_index:
    case DataType::i16_index: break;
  }
  return {ncclUint8, size_of(type)};
}

// ---- construction ----

Communicator::Communicator(const Library& library, int size, const ncclUniqueId& id, Rank rank) : library_(library) {
  ncclConfig_t config = not_blocking();
  check(library.CommInitRankConfig(&comm_, size, id, rank, &config), "meeting");
}

std::unique_ptr<NcclComm> Communicator::split(int color, int key) {
  check_usable();
  ncclConfig_t config = not_blocking();
  std::unique_ptr<Communicator> part(new Communicator(library_));
  check(library_.CommSplit(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part->comm_, &config), "splitting");
  part->parent_ = this;
  return part;
}

Communicator::~Communicator() {
  if (left_ && comm_ != nullptr)
    library_.CommDestroy(std::exchange(comm_, nullptr));
  else
    stop();
}

void Communicator::leave() {
  check_usable();
  check(library_.CommFinalize(comm_), "leaving");
  left_ = true;
}

void Communicator::stop() noexcept {
  stopped_ = true;
  left_ = false;
  // NCCL counts an incomplete split as an operation of the parent, too. The code below therefore stops the parent.
  if (Communicator* const parent = std::exchange(parent_, nullptr)) return parent->stop();
  if (comm_ != nullptr) abort_aside(library_, std::exchange(comm_, nullptr));
}

// ---- calls ----

void Communicator::check_usable() const {
  if (stopped_) throw Error(Errc::aborted, "the communicator of NCCL was given up");
}

void Communicator::check(ncclResult_t result, const char* what) {
  try {
    library_.check(result, what, comm_);
  } catch (...) {
    stop();
    throw;
  }
}

bool Communicator::ready() {
  check_usable();
  if (parent_ != nullptr) {
    try {
      if (!parent_->ready()) return false;
    } catch (...) {
      parent_ = nullptr;
      stopped_ = true;
      throw;
    }
    parent_ = nullptr;
  }
  if (comm_ == nullptr) return true;  // The communicator is empty.
  ncclResult_t state = ncclSuccess;
  check(library_.CommGetAsyncError(comm_, &state), "looking");
  check(state, "in a stream");
  if (state == ncclInProgress) return false;
  while (!made_.empty()) {
    const ncclRedOp_t op = made_.back();
    made_.pop_back();
    check(library_.RedOpDestroy(op, comm_), "forgetting a factor");
  }
  return true;
}

ncclRedOp_t Communicator::op_of(const Call& call) {
  switch (call.op.kind()) {
    case ReduceOp::Kind::product: return ncclProd;
    case ReduceOp::Kind::min: return ncclMin;
    case ReduceOp::Kind::max: return ncclMax;
    case ReduceOp::Kind::average: return ncclAvg;
    case ReduceOp::Kind::pre_scaled_sum: break;
    default: return ncclSum;
  }
  double factor = call.op.factor();
  auto narrow = static_cast<float>(factor);
  const ncclDataType_t type = elements_of(call.type).type;
  void* const scalar = type == ncclFloat32 ? static_cast<void*>(&narrow) : static_cast<void*>(&factor);
  ncclRedOp_t op = ncclSum;
  check(library_.RedOpCreatePreMulSum(&op, scalar, type, ncclScalarHostImmediate, comm_), "a factor");
  made_.push_back(op);
  return op;
}

ncclResult_t Communicator::put(const Call& call, ncclRedOp_t op, cudaStream_t stream) const {
  const auto [type, times] = elements_of(call.type);
  const std::size_t count = call.count * times;
  switch (call.kind) {
    case Kind::all_reduce: return library_.AllReduce(call.input, call.output, count, type, op, comm_, stream);
    case Kind::reduce_scatter: return library_.ReduceScatter(call.input, call.output, count, type, op, comm_, stream);
    case Kind::all_gather: return library_.AllGather(call.input, call.output, count, type, comm_, stream);
    case Kind::broadcast: return library_.Broadcast(call.input, call.output, count, type, call.rank, comm_, stream);
    case Kind::reduce: return library_.Reduce(call.input, call.output, count, type, op, call.rank, comm_, stream);
    case Kind::send: return library_.Send(call.input, count, type, call.rank, comm_, stream);
    case Kind::receive: break;
  }
  return library_.Recv(call.output, count, type, call.rank, comm_, stream);
}

void Communicator::start(std::span<const Call> calls, void* stream) {
  check_usable();
  if (calls.empty()) return;
  const ncclRedOp_t op = op_of(calls.front());  // All calls have the same op.
  check(library_.GroupStart(), "beginning a group");
  // The group must be ended even if a call in it fails.
  ncclResult_t first = ncclSuccess;
  for (const Call& call : calls) {
    const ncclResult_t result = put(call, op, static_cast<cudaStream_t>(stream));
    if (first == ncclSuccess && result != ncclInProgress) first = result;
  }
  const ncclResult_t ended = library_.GroupEnd();
  check(first, "putting a call into a stream");
  check(ended, "ending a group");
}

// ---- memory ----

void* Communicator::register_memory(void* memory, std::size_t bytes) {
  check_usable();
  void* handle = nullptr;
  library_.check(library_.CommRegister(comm_, memory, bytes, &handle), "registering memory", comm_);
  return handle;
}
void Communicator::deregister_memory(void* handle) {
  if (comm_ != nullptr) library_.check(library_.CommDeregister(comm_, handle), "deregistering memory", comm_);
}

// ---- the library ----

std::string Loaded::description() const {
  return fmt::format("NCCL {} ({})", version_text(library_.version), library_.path);
}

std::string Loaded::new_id() const {
  ncclUniqueId id;
  library_.check(library_.GetUniqueId(&id), "making an id");
  return {id.internal, sizeof id.internal};
}

std::unique_ptr<NcclComm> Loaded::join(int size, const std::string& text, Rank rank) const {
  ncclUniqueId id;
  if (text.size() != sizeof id.internal)
    throw Error(Errc::bootstrap, fmt::format("an id of NCCL has {} bytes, not {}", sizeof id.internal, text.size()));
  std::memcpy(id.internal, text.data(), text.size());
  return std::make_unique<Communicator>(library_, size, id, rank);
}

void* Loaded::allocate(std::size_t bytes) const {
  void* memory = nullptr;
  library_.check(library_.MemAlloc(&memory, bytes), "taking memory");
  return memory;
}

}  // namespace collectives::nccl
