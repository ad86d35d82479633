#include "nccl/communicator.hpp"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "collectives/error.hpp"

namespace collectives::nccl {
namespace {

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclRedOp_t op_of(ReduceOp::Kind kind) {
  switch (kind) {
    case ReduceOp::Kind::product: return ncclProd;
    case ReduceOp::Kind::min: return ncclMin;
    case ReduceOp::Kind::max: return ncclMax;
    case ReduceOp::Kind::average: return ncclAvg;
    case ReduceOp::Kind::sum:
    case ReduceOp::Kind::pre_scaled_sum:
    case ReduceOp::Kind::user: break;
  }
  return ncclSum;
}

}  // namespace

std::string why_not_by_nccl(const ReduceOp& op, DataType type, bool deterministic) {
  using Kind = ReduceOp::Kind;
  const bool extreme = op.kind() == Kind::min || op.kind() == Kind::max, floating = is_floating(type);
  if (op.kind() == Kind::user) return "NCCL calls no functions of the caller's";
  if (floating && extreme) return "NCCL's min and max let NaN get lost and do not order -0 below +0";
  if (floating && size_of(type) == 2) return "NCCL rounds 16-bit floats at every hop, not once";
  if (!floating && op.kind() == Kind::average) return "NCCL divides integer sums that have wrapped";
  if (floating && deterministic) return "NCCL adds in an order of its own, which depends on count and topology";
  return {};
}

ncclDataType_t type_of(DataType type) {
  switch (type) {
    case DataType::f32: return ncclFloat32;
    case DataType::f64: return ncclFloat64;
    case DataType::f16: return ncclFloat16;
    case DataType::bf16: return ncclBfloat16;
    case DataType::i8: return ncclInt8;
    case DataType::u8: return ncclUint8;
    case DataType::i32: return ncclInt32;
    case DataType::u32: return ncclUint32;
    case DataType::i64: return ncclInt64;
    case DataType::u64: break;
  }
  return ncclUint64;
}

ncclUniqueId Communicator::new_id(const Library& library) {
  ncclUniqueId id;
  library.check(library.GetUniqueId(&id), "making an id");
  return id;
}

Communicator::Communicator(const Library& library, int size, const ncclUniqueId& id, Rank rank, Deadline deadline)
    : library_(library), size_(size) {
  ncclConfig_t config = not_blocking();
  finish(library.CommInitRankConfig(&comm_, size, id, rank, &config), "meeting", deadline);
}

std::unique_ptr<Communicator> Communicator::split(int color, int key, Deadline deadline) {
  check_usable("splitting");
  ncclConfig_t config = not_blocking();
  std::unique_ptr<Communicator> part(new Communicator(library_, nullptr));
  finish(library_.CommSplit(comm_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &part->comm_, &config), "splitting",
         deadline);
  if (part->comm_ == nullptr) return nullptr;
  part->finish(ncclInProgress, "splitting", deadline);
  library_.check(library_.CommCount(part->comm_, &part->size_), "counting", part->comm_);
  return part;
}

Communicator::~Communicator() { give_up(); }

void Communicator::check_usable(const std::string& what) const {
  if (comm_ == nullptr || stopped_) throw Error(Errc::aborted, what + ": the communicator was given up");
}

void Communicator::give_up() noexcept {
  if (comm_ != nullptr) library_.CommAbort(std::exchange(comm_, nullptr));
}

void Communicator::finish(ncclResult_t result, const std::string& what, Deadline deadline) {
  try {
    library_.check(result, what, comm_);
    while (result == ncclInProgress) {
      if (stopped_) throw Error(Errc::aborted, what + " was stopped");
      if (deadline.passed()) throw Error(Errc::timeout, what + ": NCCL did not come to an end in time");
      std::this_thread::yield();
      result = state();
      library_.check(result, what, comm_);
    }
  } catch (...) {
    give_up();
    throw;
  }
}

template <class Calls>
void Communicator::grouped(const std::string& what, Deadline deadline, Calls&& calls) {
  check_usable(what);
  library_.check(library_.GroupStart(), what);
  ncclResult_t first = ncclSuccess;
  // A group that is begun has to be ended, whatever comes of the calls in it.
  const auto add = [&](ncclResult_t result) {
    if (first == ncclSuccess && result != ncclInProgress) first = result;
  };
  calls(add);
  const ncclResult_t ended = library_.GroupEnd();
  finish(first != ncclSuccess ? first : ended, what, deadline);
}

void Communicator::start(const Call& call, const std::string& what, Deadline deadline) {
  const ncclDataType_t type = type_of(call.type);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  ncclRedOp_t op = op_of(call.op.kind());
  const bool scaled = call.op.kind() == ReduceOp::Kind::pre_scaled_sum;
  if (scaled) {
    check_usable(what);
    double factor = call.op.factor();
    auto narrow = static_cast<float>(factor);
    void* const scalar = call.type == DataType::f32 ? static_cast<void*>(&narrow) : static_cast<void*>(&factor);
    library_.check(library_.RedOpCreatePreMulSum(&op, scalar, type, ncclScalarHostImmediate, comm_), what, comm_);
  }
  grouped(what, deadline, [&](auto&& add) {
    switch (call.collective) {
      case Collective::all_reduce:
        return add(library_.AllReduce(call.input, call.output, call.count, type, op, comm_, stream));
      case Collective::reduce_scatter:
        return add(library_.ReduceScatter(call.input, call.output, call.count, type, op, comm_, stream));
      case Collective::all_gather:
        return add(library_.AllGather(call.input, call.output, call.count, type, comm_, stream));
      case Collective::broadcast:
        return add(library_.Broadcast(call.input, call.output, call.count, type, call.root, comm_, stream));
      case Collective::reduce:
        return add(library_.Reduce(call.input, call.output, call.count, type, op, call.root, comm_, stream));
      case Collective::barrier: break;  // has nothing to put into a stream
    }
  });
  if (scaled) library_.check(library_.RedOpDestroy(op, comm_), what, comm_);
}

void Communicator::all_to_all(const void* input, void* output, std::size_t count, DataType type, void* stream,
                              const std::string& what, Deadline deadline) {
  const std::size_t bytes = count * size_of(type);
  grouped(what, deadline, [&](auto&& add) {
    for (int r = 0; r < size_; ++r) {
      const std::size_t offset = static_cast<std::size_t>(r) * bytes;
      add(library_.Send(static_cast<const std::byte*>(input) + offset, count, type_of(type), r, comm_,
                        static_cast<cudaStream_t>(stream)));
      add(library_.Recv(static_cast<std::byte*>(output) + offset, count, type_of(type), r, comm_,
                        static_cast<cudaStream_t>(stream)));
    }
  });
}

void Communicator::look(const std::string& what) {
  check_usable(what);
  const ncclResult_t now = state();
  if (now != ncclInProgress) finish(now, what, Deadline::never());
}

ncclResult_t Communicator::state() const {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = library_.CommGetAsyncError(comm_, &state);
  return asked == ncclSuccess ? state : asked;
}

void* Communicator::register_memory(void* memory, std::size_t bytes) {
  check_usable("registering memory");
  void* handle = nullptr;
  library_.check(library_.CommRegister(comm_, memory, bytes, &handle), "registering memory", comm_);
  return handle;
}
void Communicator::deregister_memory(void* handle) {
  if (comm_ != nullptr) library_.check(library_.CommDeregister(comm_, handle), "deregistering memory", comm_);
}

}  // namespace collectives::nccl
