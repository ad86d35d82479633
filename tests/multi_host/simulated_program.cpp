// One rank of a simulated job: the unchanged library over its MPI transport, inside SMPI, the MPI of the simulator
// SimGrid. Every rank has a simulated host of its own, because the simulation does not see waits in shared memory.
//
//   simulated_program BACKEND COLLECTIVE BYTES...
//
// Runs the collective once for every size and checks every element on every rank. Rank 0 prints a line for each size:
//
//   all_reduce 65536 bytes, 64 ranks: 1792.0 us, hierarchical_halving
//
// The simulated microseconds begin when the last rank begins, and end when the last rank is done. The exit status is 1
// if an element was wrong.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/mpi.hpp"

namespace collectives {
namespace {

class OneRankPerHost final : public Bootstrap {
 public:
  std::string_view name() const noexcept override { return mpi_.name(); }
  Rank rank() const noexcept override { return mpi_.rank(); }
  int size() const noexcept override { return mpi_.size(); }
  /// Exchanges the data through memory, because all ranks are threads of one process. Simulated messages of a bootstrap
  /// with hundreds of ranks would take longer than the tested collectives.
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    static std::vector<std::string> peer_infos;
    peer_infos.resize(static_cast<std::size_t>(size()));
    peer_infos[static_cast<std::size_t>(rank())] = mine;
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<std::string> all = peer_infos;
    MPI_Barrier(MPI_COMM_WORLD);
    return all;
  }
  std::string host() const override { return fmt::format("host{}", rank()); }
  WireFactory wire_factory() override { return mpi_.wire_factory(); }

 private:
  MpiBootstrap mpi_{MPI_COMM_WORLD};
};

std::size_t number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw std::invalid_argument(fmt::format("'{}' is no number of bytes", text));
  return value;
}

/// Returns element `i` of the contribution of `rank`. It is a whole number, so sums are exact in any order.
float element(Rank rank, std::size_t i) { return static_cast<float>((i + 3 * static_cast<std::size_t>(rank)) % 17); }

/// Returns the sums of elements 0 to 16 over all ranks. Contributions have a period of 17 in the index and in the rank.
std::vector<float> sums(int ranks) {
  std::vector<float> sums(17);
  for (std::size_t i = 0; i < sums.size(); ++i)
    for (Rank rank = 0; rank < ranks; ++rank) sums[i] += element(rank, i);
  return sums;
}

/// One collective call with its buffers. It counts the wrong elements of the result.
class Job {
 public:
  Job(Communicator& comm, std::string_view collective, std::size_t bytes) : comm_(comm), collective_(collective) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t whole = bytes / sizeof(float), part = whole / ranks;
    const bool gathers = collective == "all_gather", scatters = collective == "reduce_scatter";
    first_ = gathers || scatters ? part * static_cast<std::size_t>(comm.rank()) : 0;
    input_.resize(gathers ? part : scatters ? part * ranks : whole);
    output_.resize(scatters ? part : gathers ? part * ranks : whole);
    for (std::size_t i = 0; i < input_.size(); ++i) input_[i] = element(comm.rank(), gathers ? first_ + i : i);
    if (collective == "broadcast" && comm.rank() == 0) output_ = input_;
  }

  void run() {
    const std::span<const float> in(input_);
    const std::span<float> out(output_);
    if (collective_ == "all_reduce") return comm_.all_reduce(in, out);
    if (collective_ == "reduce_scatter") return comm_.reduce_scatter(in, out);
    if (collective_ == "all_gather") return comm_.all_gather(in, out);
    if (collective_ == "broadcast") return comm_.broadcast(out, 0);
    throw std::invalid_argument(fmt::format("no collective '{}'", collective_));
  }

  std::size_t wrong() const {
    const std::vector<float> sum = sums(comm_.size());
    const std::size_t part = std::max<std::size_t>(1, output_.size() / static_cast<std::size_t>(comm_.size()));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      const float right = collective_ == "broadcast"    ? element(0, i)
                          : collective_ == "all_gather" ? element(static_cast<Rank>(i / part), i)
                                                        : sum[(first_ + i) % sum.size()];
      wrong += output_[i] != right;
    }
    return wrong;
  }

 private:
  Communicator& comm_;
  std::string_view collective_;
  std::size_t first_ = 0;  // first element of this rank's part
  std::vector<float> input_, output_;
};

Collective named(std::string_view name) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast})
    if (to_string(collective) == name) return collective;
  throw std::invalid_argument(fmt::format("no collective '{}'", name));
}

int run(int argc, char** argv) {
  if (argc < 4) throw std::invalid_argument("usage: simulated_program BACKEND COLLECTIVE BYTES...");
  OneRankPerHost bootstrap;
  CommunicatorOptions options;
  options.backend = argv[1];
  options.transport = "mpi";
  Communicator comm(bootstrap, options);
  bool failed = false;
  for (int a = 3; a < argc; ++a) {
    const std::size_t bytes = number(argv[a]);
    Job job(comm, argv[2], bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    // All simulated hosts have one clock.
    const double begun = MPI_Wtime();
    job.run();
    const double ended = MPI_Wtime();
    double first = 0, last = 0;
    unsigned long long wrong = job.wrong(), all_wrong = 0;
    MPI_Allreduce(&begun, &first, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&ended, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&wrong, &all_wrong, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    failed = failed || all_wrong > 0;
    if (comm.rank() != 0) continue;
    const Plan plan = comm.plan(named(argv[2]), bytes / sizeof(float), DataType::f32);
    fmt::print("{} {} bytes, {} ranks: {:.1f} us, {}{}\n", argv[2], bytes, comm.size(), (last - first) * 1e6, plan.name,
               all_wrong > 0 ? fmt::format(", {} elements WRONG", all_wrong) : "");
    std::fflush(stdout);
  }
  return failed ? 1 : 0;
}

}  // namespace
}  // namespace collectives

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = collectives::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "simulated_program: {}\n", error.what());
  }
  MPI_Finalize();
  return status;
}
