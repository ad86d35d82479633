// Program that times MPI for the comparison with other libraries. scripts/compare.sh compiles this file once for each
// implementation of MPI, with its compiler wrapper.
#include <mpi.h>

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

  void progress() override {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  }
};

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) {
  using namespace collectives::compare;
  return run_contender(argc, argv, [](SyncFile&, const std::string&) { return std::make_unique<Mpi>(); });
}
