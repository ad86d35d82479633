// Implementation of the use of MPI in collectives_bench. MPI connects the ranks (bootstrap). Its collectives are also
// timed, as a competitor.
#include "collectives_bench/mpi.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "collectives/mpi.hpp"

namespace collectives::bench {

namespace {

MPI_Datatype mpi_type(DataType type) {
  switch (type) {
    case DataType::f32: return MPI_FLOAT;
    case DataType::f64: return MPI_DOUBLE;
    case DataType::f16:
    case DataType::bf16: return MPI_UINT16_T;  // MPI lacks 16-bit floats and copies them as integers
    case DataType::i8: return MPI_INT8_T;
    case DataType::u8: return MPI_UINT8_T;
    case DataType::i32: return MPI_INT32_T;
    case DataType::u32: return MPI_UINT32_T;
    case DataType::i64: return MPI_INT64_T;
    case DataType::u64: return MPI_UINT64_T;
    case DataType::boolean: return MPI_C_BOOL;
    case DataType::i16: return MPI_INT16_T;
    case DataType::u16: return MPI_UINT16_T;
    case DataType::f8e4m3:
    case DataType::f8e5m2: return MPI_UINT8_T;  // MPI lacks 8-bit floats and copies them as integers
    case DataType::complex64: return MPI_C_FLOAT_COMPLEX;
    case DataType::complex128: return MPI_C_DOUBLE_COMPLEX;
    case DataType::f32_index: return MPI_FLOAT_INT;
    case DataType::f64_index: return MPI_DOUBLE_INT;
    case DataType::i64_index: return MPI_LONG_INT;
    case DataType::i32_index: return MPI_2INT;
    case DataType::i16_index: return MPI_SHORT_INT;
  }
  return MPI_DATATYPE_NULL;
}

/// Returns the op of MPI for `kind`, or MPI_OP_NULL if MPI has none.
MPI_Op mpi_op(ReduceOp::Kind kind, DataType type) {
  const bool boolean = type == DataType::boolean;  // for booleans, MPI has only logical ops
  switch (kind) {
    case ReduceOp::Kind::sum: return boolean ? MPI_LOR : MPI_SUM;
    case ReduceOp::Kind::product: return boolean ? MPI_LAND : MPI_PROD;
    case ReduceOp::Kind::min: return boolean ? MPI_LAND : MPI_MIN;
    case ReduceOp::Kind::max: return boolean ? MPI_LOR : MPI_MAX;
    case ReduceOp::Kind::bitwise_and: return boolean ? MPI_LAND : MPI_BAND;
    case ReduceOp::Kind::bitwise_or: return boolean ? MPI_LOR : MPI_BOR;
    case ReduceOp::Kind::bitwise_xor: return boolean ? MPI_LXOR : MPI_BXOR;
    case ReduceOp::Kind::logical_and: return MPI_LAND;
    case ReduceOp::Kind::logical_or: return MPI_LOR;
    case ReduceOp::Kind::logical_xor: return MPI_LXOR;
    case ReduceOp::Kind::min_loc: return MPI_MINLOC;
    case ReduceOp::Kind::max_loc: return MPI_MAXLOC;
    case ReduceOp::Kind::average:
    case ReduceOp::Kind::pre_scaled_sum:
    case ReduceOp::Kind::user: return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

class MpiCompetitor final : public Competitor {
 public:
  MpiCompetitor() { MPI_Comm_dup(MPI_COMM_WORLD, &comm_); }
  ~MpiCompetitor() override { MPI_Comm_free(&comm_); }
  MpiCompetitor(const MpiCompetitor&) = delete;
  MpiCompetitor& operator=(const MpiCompetitor&) = delete;

  bool has(const Call& call) const override {
    const std::size_t count = std::max(call.input.count, call.output.count);
    if (count > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
    const bool small = is_floating(call.type) && size_of(call.type) <= 2;
    return !is_reduction(call.operation) || (!small && mpi_op(call.op.kind(), call.type) != MPI_OP_NULL);
  }

  void perform(const Call& call) override {
    const MPI_Datatype type = mpi_type(call.type);
    const MPI_Op op = mpi_op(call.op.kind(), call.type);
    const bool at_root = call.rank == call.root;
    const void* const input = call.input.data;
    const void* const input_or_in_place = call.in_place ? MPI_IN_PLACE : input;
    void* const output = call.output.data;
    const int in_count = static_cast<int>(call.input.count), out_count = static_cast<int>(call.output.count);
    switch (call.operation) {
      case Operation::all_reduce: MPI_Allreduce(input_or_in_place, output, out_count, type, op, comm_); break;
      case Operation::reduce_scatter:
        // In place, MPI writes the result to the beginning of the vector, whereas this library writes it to this rank's
        // part.
        MPI_Reduce_scatter_block(input_or_in_place, call.in_place ? call.whole : output, out_count, type, op, comm_);
        break;
      case Operation::all_gather:
        MPI_Allgather(input_or_in_place, in_count, type, output, in_count, type, comm_);
        break;
      case Operation::broadcast:
        // MPI_Bcast has one buffer, so the root makes no copy, even out of place.
        MPI_Bcast(at_root && !call.in_place ? const_cast<void*>(input) : output, out_count, type, call.root, comm_);
        break;
      case Operation::reduce:
        MPI_Reduce(at_root ? input_or_in_place : input, at_root ? output : nullptr, in_count, type, op, call.root,
                   comm_);
        break;
      case Operation::scan: MPI_Scan(input_or_in_place, output, out_count, type, op, comm_); break;
      case Operation::exclusive_scan: MPI_Exscan(input_or_in_place, output, out_count, type, op, comm_); break;
      case Operation::barrier: MPI_Barrier(comm_); break;
      default: perform_parts(call, type, op); break;
    }
  }

 private:
  /// Performs an operation whose buffers have one part per rank, or a point-to-point message.
  void perform_parts(const Call& call, MPI_Datatype type, MPI_Op op) {
    const bool at_root = call.rank == call.root;
    const void* const input = call.input.data;
    const void* const input_or_in_place = call.in_place ? MPI_IN_PLACE : input;
    void* const output = call.output.data;
    const int in_count = static_cast<int>(call.input.count), out_count = static_cast<int>(call.output.count);
    const int part = static_cast<int>(call.count);
    list(call.counts);
    const int *const counts = counts_.data(), *const firsts = firsts_.data();
    switch (call.operation) {
      case Operation::reduce_scatter_v:
        MPI_Reduce_scatter(input_or_in_place, call.in_place ? call.whole : output, counts, type, op, comm_);
        break;
      case Operation::all_gather_v:
        MPI_Allgatherv(input_or_in_place, in_count, type, output, counts, firsts, type, comm_);
        break;
      case Operation::all_to_all: MPI_Alltoall(input_or_in_place, part, type, output, part, type, comm_); break;
      case Operation::all_to_all_v:
        MPI_Alltoallv(input_or_in_place, counts, firsts, type, output, counts, firsts, type, comm_);
        break;
      case Operation::gather:
        MPI_Gather(at_root ? input_or_in_place : input, part, type, output, part, type, call.root, comm_);
        break;
      case Operation::gather_v:
        MPI_Gatherv(at_root ? input_or_in_place : input, in_count, type, output, counts, firsts, type, call.root,
                    comm_);
        break;
      case Operation::scatter:
        MPI_Scatter(input, part, type, at_root && call.in_place ? MPI_IN_PLACE : output, part, type, call.root, comm_);
        break;
      case Operation::scatter_v:
        MPI_Scatterv(input, counts, firsts, type, at_root && call.in_place ? MPI_IN_PLACE : output, out_count, type,
                     call.root, comm_);
        break;
      case Operation::sendrecv:
        MPI_Sendrecv(input, in_count, type, call.peer_to, 0, output, out_count, type, call.peer_from, 0, comm_,
                     MPI_STATUS_IGNORE);
        break;
      case Operation::ping_pong:
        if (call.peer_to == kNoRank) break;
        if (call.rank % 2 == 0) MPI_Send(input, in_count, type, call.peer_to, 0, comm_);
        MPI_Recv(output, out_count, type, call.peer_to, 0, comm_, MPI_STATUS_IGNORE);
        if (call.rank % 2 != 0) MPI_Send(input, in_count, type, call.peer_to, 0, comm_);
        break;
      default: break;
    }
  }

  /// Stores the lengths and the offsets of the parts as `int`, the type of MPI's arguments.
  void list(std::span<const std::size_t> counts) {
    counts_.resize(counts.size());
    firsts_.resize(counts.size());
    for (std::size_t r = 0, first = 0; r < counts.size(); first += counts[r++]) {
      counts_[r] = static_cast<int>(counts[r]);
      firsts_[r] = static_cast<int>(first);
    }
  }

  std::vector<int> counts_, firsts_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

class RealMpiSession final : public MpiSession {
 public:
  RealMpiSession() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  }
  ~RealMpiSession() override { MPI_Finalize(); }
  RealMpiSession(const RealMpiSession&) = delete;
  RealMpiSession& operator=(const RealMpiSession&) = delete;

  std::unique_ptr<Bootstrap> bootstrap() override { return std::make_unique<MpiBootstrap>(MPI_COMM_WORLD); }
  std::unique_ptr<Competitor> competitor() override { return std::make_unique<MpiCompetitor>(); }
  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of(",\n"));
  }
  [[noreturn]] void abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }
};

}  // namespace

bool under_mpi_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<MpiSession> start_mpi() { return std::make_unique<RealMpiSession>(); }

}  // namespace collectives::bench
