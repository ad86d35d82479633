// Program that times this library for the comparison with other libraries. A contender is a library that is timed.
// mpirun starts the program, which normally does not use MPI. If it is compiled with COMPARE_WITH_MPI, it initializes
// MPI, and the library sends messages between hosts by MPI.
#include <collectives/collectives.hpp>
#ifdef COMPARE_WITH_MPI
#include <collectives/mpi.hpp>
#endif
#include <numeric>
#include <string>
#include <vector>

#include "harness.hpp"

namespace collectives::compare {
namespace {

class Ours final : public Contender {
 public:
  explicit Ours(bool allocated) : allocated_(allocated) {}

  float* make_buffer(std::size_t count) override {
    if (!allocated_) return Contender::make_buffer(count);
    return buffers_.emplace_back(comm_.allocate<float>(count)).data();
  }

  void all_reduce(const float* in, float* out, std::size_t count) override {
    comm_.all_reduce(input(in, count), output(out, count), ReduceOp::sum, options());
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    float* const result = in == out ? out + rank() * part : out;
    comm_.reduce_scatter(input(in, ranks() * part), output(result, part), ReduceOp::sum, options());
    return result;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    comm_.all_gather(input(in, part), output(out, ranks() * part), options());
  }

  void broadcast(float* data, std::size_t count) override { comm_.broadcast(output(data, count), 0, options()); }

  bool offers(Operation, bool /*in_place*/) const override { return true; }

  void exchange(const Exchange& x) override {
    const std::size_t whole = std::accumulate(x.counts.begin(), x.counts.end(), std::size_t{0});
    const Options how = options();
    switch (x.operation) {
      case Operation::all_to_all: return comm_.all_to_all(input(x.in, whole), output(x.out, whole), how);
      case Operation::all_to_all_v:
        return comm_.all_to_all_v(input(x.in, whole), x.counts, output(x.out, whole), x.counts, how);
      case Operation::gather: return comm_.gather(input(x.in, x.own()), output(x.out, whole), 0, how);
      case Operation::gather_v: return comm_.gather_v(input(x.in, x.own()), output(x.out, whole), x.counts, 0, how);
      case Operation::scatter: return comm_.scatter(input(x.in, whole), output(x.out, x.own()), 0, how);
      case Operation::scatter_v: return comm_.scatter_v(input(x.in, whole), output(x.out, x.own()), x.counts, 0, how);
      case Operation::scan: return comm_.scan(input(x.in, x.count), output(x.out, x.count), ReduceOp::sum, how);
      case Operation::exclusive_scan:
        return comm_.exclusive_scan(input(x.in, x.count), output(x.out, x.count), ReduceOp::sum, how);
      default: return exchange_message(x);
    }
  }

  void select_backend(const std::string& backend) override { backend_ = backend; }

  void progress() override {
    comm_.progress();
#ifdef COMPARE_WITH_MPI  // MPI sends messages only during its calls, and a peer may wait for one
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
#endif
  }

 private:
  void exchange_message(const Exchange& x) {
    const Rank to = static_cast<Rank>(x.to()), from = static_cast<Rank>(x.from());
    if (x.operation == Operation::sendrecv) {
      comm_.sendrecv(input(x.in, x.count), to, output(x.out, x.count), from);
    } else if (x.to() < x.ranks) {
      if (x.rank % 2 == 0) comm_.send(input(x.in, x.count), to);
      comm_.recv(output(x.out, x.count), to);
      if (x.rank % 2 != 0) comm_.send(input(x.in, x.count), to);
    }
  }

  static ConstBuffer input(const float* data, std::size_t count) { return {data, count, DataType::f32}; }
  static Buffer output(float* data, std::size_t count) { return {data, count, DataType::f32}; }
  Options options() const { return {.backend = backend_}; }
  std::size_t rank() const { return static_cast<std::size_t>(comm_.rank()); }
  std::size_t ranks() const { return static_cast<std::size_t>(comm_.size()); }

  bool allocated_;
  std::string backend_;
#ifdef COMPARE_WITH_MPI
  struct Mpi {
    Mpi() {
      int threads = MPI_THREAD_SINGLE;
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads);
    }
    Mpi(const Mpi&) = delete;
    Mpi& operator=(const Mpi&) = delete;
    ~Mpi() { MPI_Finalize(); }
  } mpi_;
  Communicator comm_{MpiBootstrap(MPI_COMM_WORLD)};
#else
  Communicator comm_ = Communicator::from_environment();
#endif
  std::vector<SharedArray<float>> buffers_;
};

std::unique_ptr<Contender> make(SyncFile&, const std::string& variant) {
  if (variant != "ordinary" && variant != "allocated")
    throw BadArguments("--variant " + variant + ": known are ordinary, allocated");
  return std::make_unique<Ours>(variant == "allocated");
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) { return collectives::compare::run_contender(argc, argv, collectives::compare::make); }
