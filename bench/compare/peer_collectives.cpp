// Program that times this library for the comparison with other libraries. A library that is timed is a contender.
// mpirun starts the program, which does not use MPI itself. Compiled with COMPARE_WITH_MPI, the program initializes
// MPI, and the library sends the bytes between hosts by MPI.
#include <collectives/collectives.hpp>
#ifdef COMPARE_WITH_MPI
#include <collectives/mpi.hpp>
#endif
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

  void select_backend(const std::string& backend) override { backend_ = backend; }

  void progress() override {
    comm_.progress();
#ifdef COMPARE_WITH_MPI  // a peer may wait for a message that MPI has not sent yet
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
#endif
  }

 private:
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
