// Part of gpu_bench, the benchmark on GPUs. It times an all-reduce of the library by the backend `nccl`, and a direct
// call of ncclAllReduce. Both calls use the same buffers, streams and GPUs. The ranks are threads, one per GPU.
#include <barrier>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "cuda/nccl_library.hpp"
#include "gpu_bench.hpp"

namespace collectives::gpu_bench {
namespace {

/// NCCL communicator of one rank, for direct calls.
class Direct {
 public:
  Direct(const nccl::Library& library, int ranks, const ncclUniqueId& id, int rank) : library_(library) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    library.check(library.CommInitRankConfig(&comm_, ranks, id, rank, &config), "NCCL's communicator");
  }
  ~Direct() { library_.CommAbort(comm_); }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;
  void all_reduce(const float* in, float* out, std::size_t count, cudaStream_t stream) const {
    library_.check(library_.AllReduce(in, out, count, ncclFloat32, ncclSum, comm_, stream), "ncclAllReduce");
  }

 private:
  const nccl::Library& library_;
  ncclComm_t comm_ = nullptr;
};

struct Setup {
  const nccl::Library& library;
  ncclUniqueId id;
  int ranks, repeats;
  std::barrier<>& together;
};

void measure(const Setup& setup, int rank, Bootstrap& bootstrap) {
  check(cudaSetDevice(rank), "device");
  TimedStream stream;
  Communicator comm(bootstrap, {.backend = "nccl", .device_buffers = true});
  const Direct direct(setup.library, setup.ranks, setup.id, rank);
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{1} << 20, std::size_t{16} << 20, std::size_t{256} << 20}) {
    // calls between two events; short calls are timed many at a time, because work of the CPU also counts
    const int calls = bytes <= 8 ? 1000 : 10;
    const std::size_t count = bytes / sizeof(float);
    const Memory in = memory(bytes), out = memory(bytes);
    const auto uses_nccl = [&] {
      for (int i = 0; i < calls; ++i) direct.all_reduce(in->as<float>(), out->as<float>(), count, stream.get());
    };
    const auto by_us = [&] {
      for (int i = 0; i < calls; ++i)
        comm.all_reduce({in->as(), count, DataType::f32}, {out->as(), count, DataType::f32}, ReduceOp::sum,
                        {.stream = stream.get()});
    };
    std::vector<double> theirs, ours;
    for (int i = -1; i < setup.repeats; ++i) {  // the first repeat is a warm-up
      setup.together.arrive_and_wait();
      const double their_seconds = stream.time(uses_nccl) / calls;
      setup.together.arrive_and_wait();
      const double our_seconds = stream.time(by_us) / calls;
      if (i < 0) continue;
      theirs.push_back(their_seconds);
      ours.push_back(our_seconds);
    }
    if (rank != 0) continue;
    const double nccl_us = 1e6 * median(theirs), us = 1e6 * median(ours);
    fmt::print("{:<40} {:>10.1f} us   NCCL alone {:.1f} us: {:.1f} us more, {:.3f} of its time\n",
               fmt::format("all_reduce by nccl, {} bytes, {} GPUs", bytes, setup.ranks), us, nccl_us, us - nccl_us,
               us / nccl_us);
    std::fflush(stdout);
  }
}

}  // namespace

void nccl_figures(int devices, int repeats) {
  std::string why_not;
  const nccl::Library* const library = nccl::find_library(why_not);
  if (library == nullptr) {
    fmt::print("{:<40} skipped: {}\n", "all_reduce by nccl", why_not);
    return;
  }
  std::barrier<> together(devices);
  Setup setup{*library, {}, devices, repeats, together};
  library->check(library->GetUniqueId(&setup.id), "NCCL's unique id");
  const auto bootstraps = bootstrap_threads(devices);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < devices; ++rank)
    threads.emplace_back([&setup, rank, &bootstrap = *bootstraps[static_cast<std::size_t>(rank)]] {
      try {
        measure(setup, rank, bootstrap);
      } catch (const std::exception& error) {  // the other ranks would wait for this rank forever
        fmt::print(stderr, "gpu_bench: rank {}: {}\n", rank, error.what());
        std::_Exit(1);
      }
    });
}

}  // namespace collectives::gpu_bench
