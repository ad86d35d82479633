// Program that times MPI for the comparison with other libraries. The script scripts/compare.sh compiles this file once
// per implementation of MPI, by the compiler wrapper of that implementation.
#include <mpi.h>

#include <span>
#include <vector>

#include "harness.hpp"

namespace collectives::compare {
namespace {

class Mpi final : public Contender {
 public:
  Mpi() { MPI_Init(nullptr, nullptr); }
  ~Mpi() override { MPI_Finalize(); }

  void all_reduce(const float* in, float* out, std::size_t count) override {
    MPI_Allreduce(in == out ? MPI_IN_PLACE : in, out, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    MPI_Reduce_scatter_block(in == out ? MPI_IN_PLACE : in, out, static_cast<int>(part), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
    return out;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    const auto elements = static_cast<int>(part);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const bool in_place = in == out + static_cast<std::size_t>(rank) * part;
    MPI_Allgather(in_place ? MPI_IN_PLACE : in, elements, MPI_FLOAT, out, elements, MPI_FLOAT, MPI_COMM_WORLD);
  }

  void broadcast(float* data, std::size_t count) override {
    MPI_Bcast(data, static_cast<int>(count), MPI_FLOAT, 0, MPI_COMM_WORLD);
  }

  bool offers(Operation, bool /*in_place*/) const override { return true; }

  void exchange(const Exchange& x) override {
    const void* const in = x.in;
    const void* const in_or_in_place = x.in_place ? MPI_IN_PLACE : in;
    const void* const in_at_root = x.in_place && x.at_root() ? MPI_IN_PLACE : in;
    void* const out_at_root = x.in_place && x.at_root() ? MPI_IN_PLACE : x.out;
    const int count = static_cast<int>(x.count), to = static_cast<int>(x.to()), from = static_cast<int>(x.from());
    list(x.counts);
    const int *const counts = counts_.data(), *const firsts = firsts_.data();
    const int own = counts_.empty() ? 0 : counts[x.rank];
    const MPI_Datatype type = MPI_FLOAT;
    const MPI_Comm comm = MPI_COMM_WORLD;
    switch (x.operation) {
      case Operation::all_to_all: MPI_Alltoall(in_or_in_place, count, type, x.out, count, type, comm); break;
      case Operation::all_to_all_v:
        MPI_Alltoallv(in_or_in_place, counts, firsts, type, x.out, counts, firsts, type, comm);
        break;
      case Operation::gather: MPI_Gather(in_at_root, count, type, x.out, count, type, 0, comm); break;
      case Operation::gather_v: MPI_Gatherv(in_at_root, own, type, x.out, counts, firsts, type, 0, comm); break;
      case Operation::scatter: MPI_Scatter(in, count, type, out_at_root, count, type, 0, comm); break;
      case Operation::scatter_v: MPI_Scatterv(in, counts, firsts, type, out_at_root, own, type, 0, comm); break;
      case Operation::scan: MPI_Scan(in_or_in_place, x.out, count, type, MPI_SUM, comm); break;
      case Operation::exclusive_scan: MPI_Exscan(in_or_in_place, x.out, count, type, MPI_SUM, comm); break;
      case Operation::sendrecv:
        MPI_Sendrecv(in, count, type, to, 0, x.out, count, type, from, 0, comm, MPI_STATUS_IGNORE);
        break;
      case Operation::ping_pong:
        if (x.to() >= x.ranks) break;
        if (x.rank % 2 == 0) MPI_Send(in, count, type, to, 0, comm);
        MPI_Recv(x.out, count, type, to, 0, comm, MPI_STATUS_IGNORE);
        if (x.rank % 2 != 0) MPI_Send(in, count, type, to, 0, comm);
        break;
      default: Contender::exchange(x);
    }
  }

  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }

 private:
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
};

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) {
  using namespace collectives::compare;
  return run_contender(argc, argv, [](SyncFile&, const std::string&) { return std::make_unique<Mpi>(); });
}
