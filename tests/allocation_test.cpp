// In the second and later calls with the same arguments, the library allocates nothing. Every allocation of this
// program goes through the operators below, which count while a rank says so.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/ranks.hpp"

namespace {
thread_local bool counting = false;
std::atomic<int> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
  if (counting) ++allocations;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: the compiler would see memory of aligned_alloc() go to `delete`, and that of `new` to free(), which is
// right here and nowhere else.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace collectives::testing {
namespace {

TEST(Allocation, NoneInRepeatedCalls) {
  run_communicators(3, [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    for (const char* backend : {"hierarchical", "ring", "reduce_to_one_direct", "reduce_to_one_tree"})
      for (const std::size_t count : {3u, 3000u, 300'000u}) {
        std::vector<float> in(count, 1.f), out(count), whole(count * p);
        std::vector<std::size_t> counts(p, count);
        const Options with{.backend = backend, .name = "a tensor whose name is longer than a small string holds"};
        TopK top_k({.k = 3});
        const auto everything = [&] {
          comm.all_reduce(in, out, ReduceOp::average, with);
          comm.all_reduce(in, out, ReduceOp::sum, {.backend = backend, .deterministic = true});
          comm.all_gather(in, whole, with);
          comm.all_gather_v(in, whole, counts, with);
          comm.reduce_scatter(whole, out, ReduceOp::sum, with);
          comm.broadcast(out, 1, with);
          comm.reduce(in, out, ReduceOp::max, 2, with);
          comm.barrier(with);
          comm.all_reduce(in, out, ReduceOp::sum, {.backend = backend, .wire = DataType::bf16, .force = true});
          comm.all_reduce(in, out, ReduceOp::sum,
                          {.backend = backend,
                           .name = "a tensor whose name is longer than a small string holds",
                           .compressor = &top_k,
                           .force = true});
          Work first = comm.all_reduce_async(in, out, ReduceOp::sum, with), second = comm.barrier_async(with);
          first.wait();
          second.wait();
        };
        everything();
        everything();  // queues and pools have now grown to what this takes
        comm.barrier();
        allocations = 0;
        comm.barrier();
        counting = true;
        everything();
        counting = false;
        comm.barrier();
        EXPECT_EQ(allocations, 0) << backend << ", " << count << " elements";
        comm.barrier();
      }
  });
}

}  // namespace
}  // namespace collectives::testing
