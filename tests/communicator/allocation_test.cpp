// Tests that the library allocates no memory in the second and later calls with equal arguments. This file replaces
// operator new by functions that count the allocations of a thread while its `counting` is set.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "collectives/collectives.h"
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

// Not inlined, because the compiler would warn: it would see memory of aligned_alloc() go to `delete`, and memory of
// `new` go to free(). Both are correct with the operators of this file.
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

/// Checks on every rank that calls of `everything` allocate nothing after the first two. `synchronize` is a barrier of
/// all ranks. `what` names the calls in failures.
void expect_no_allocations(const std::function<void()>& everything, const std::function<void()>& synchronize,
                           const std::string& what) {
  everything();
  everything();  // queues and pools have reached their final size
  synchronize();
  allocations = 0;
  synchronize();
  counting = true;
  everything();
  counting = false;
  synchronize();
  EXPECT_EQ(allocations, 0) << what;
  synchronize();
}

TEST(Allocation, RepeatedCallsAllocateNothing) {
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
        expect_no_allocations(
            everything, [&] { comm.barrier(); }, fmt::format("{}, {} elements", backend, count));
      }
  });
}

TEST(Allocation, RepeatedRunsOfAGroupAllocateNothing) {
  run_communicators(3, [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    const Options with{.name = "a tensor whose name is longer than a small string holds"};
    Group group = comm.group();
    for (const std::size_t count : {3u, 3000u, 300'000u}) {  // fused, partly fused, not fused
      std::vector<std::vector<float>> in(3, std::vector<float>(count, 1.f)), out(in),
          wide(6, std::vector<float>(count * p));
      std::vector<std::size_t> counts(p, count);
      const auto everything = [&] {
        for (std::size_t i = 0; i < in.size(); ++i) {
          group.all_reduce(in[i], out[i]);
          group.all_to_all(wide[i], wide[i + 3]);
        }
        group.run();
        for (std::size_t i = 0; i < in.size(); ++i) group.gather(in[i], wide[i], 1);
        group.all_gather_v(in[0], wide[3], counts, with);
        group.gather_v(in[1], wide[4], counts, 0);
        group.broadcast(out[0], 2, with);
        group.broadcast(out[1], 2);
        group.barrier();
        group.run();
      };
      expect_no_allocations(
          everything, [&] { comm.barrier(); }, fmt::format("{} elements", count));
    }
  });
}

TEST(Allocation, RepeatedMessagesAllocateNothing) {
  run_communicators(3, [](Communicator& comm) {
    const Rank ahead = (comm.rank() + 1) % 3, behind = (comm.rank() + 2) % 3;
    for (const std::size_t count : {1u, 100u, 3000u, 300'000u}) {
      std::vector<float> in(count, 1.f), out(count), other(count);
      const auto everything = [&] {
        // The message with tag 4 is stored in every run, so that later runs have memory for a stored message.
        Work fourth = comm.send_async(in, ahead, 4), fifth = comm.send_async(in, ahead, 5);
        comm.recv(out, behind, 5);
        comm.recv(other, behind, 4);
        fourth.wait();
        fifth.wait();
        comm.barrier();
        // Messages that come before their receives, and receives that come before their messages.
        Work send = comm.send_async(in, ahead, 1);
        comm.barrier();
        comm.barrier();
        comm.recv(out, any_source, 1);
        send.wait();
        Work receive = comm.recv_async(out, behind, 2);
        comm.barrier();
        comm.send(in, ahead, 2);
        receive.wait();
        Work both = comm.sendrecv_async(in, ahead, other, behind, 3);
        both.wait();
        comm.barrier();
      };
      expect_no_allocations(
          everything, [&] { comm.barrier(); }, fmt::format("{} elements", count));
    }
  });
}

TEST(Allocation, RepeatedBlockingCallsFromCAllocateNothing) {
  collectives_threads* threads = nullptr;
  ASSERT_EQ(collectives_threads_create(3, &threads), COLLECTIVES_SUCCESS);
  const auto rank = [&](int self) {
    collectives_communicator* comm = nullptr;
    ASSERT_EQ(collectives_communicator_from_threads(threads, self, nullptr, &comm), COLLECTIVES_SUCCESS);
    std::vector<float> in(3000, 1.f), out(3000), whole(9000);
    const std::size_t counts[] = {3000, 3000, 3000};
    collectives_options with{};
    with.size = sizeof with;
    with.backend = "ring";
    with.name = "a tensor whose name is longer than a small string holds";
    with.timeout_seconds = 60;
    with.wire = "bf16";
    with.force = COLLECTIVES_ON;
    const auto everything = [&] {
      int failed = 0;
      const auto call = [&](collectives_error error) { failed += error != COLLECTIVES_SUCCESS; };
      for (const collectives_options* options : std::initializer_list<const collectives_options*>{&with, nullptr}) {
        call(collectives_all_reduce(comm, in.data(), out.data(), 3000, COLLECTIVES_F32, COLLECTIVES_AVERAGE, options));
        call(collectives_all_gather(comm, in.data(), whole.data(), 3000, COLLECTIVES_F32, options));
        call(collectives_all_gather_v(comm, in.data(), whole.data(), counts, COLLECTIVES_F32, options));
        call(collectives_reduce_scatter(comm, whole.data(), out.data(), 3000, COLLECTIVES_F32, COLLECTIVES_SUM,
                                        options));
        call(collectives_broadcast(comm, out.data(), out.data(), 3000, COLLECTIVES_F32, 1, options));
        call(collectives_reduce(comm, in.data(), out.data(), 3000, COLLECTIVES_F32, COLLECTIVES_MAX, 2, options));
        call(collectives_barrier(comm, options));
      }
      EXPECT_EQ(failed, 0) << collectives_last_error();
    };
    expect_no_allocations(
        everything, [&] { collectives_barrier(comm, nullptr); }, "from C");
    collectives_communicator_free(comm);
  };
  {
    std::vector<std::jthread> ranks;
    for (int self = 0; self < 3; ++self) ranks.emplace_back(rank, self);
  }
  collectives_threads_free(threads);
}

}  // namespace
}  // namespace collectives::testing
