// Tests of ops of the program whose elements take several elements of the type. They test refusals, mismatches, the
// alignment of the pointers, the longest elements, and shared buffers. The suite UserOpsSeeWholeElements of
// backend_conformance.hpp tests the results on all backends.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/tuning_parameters.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

/// Returns an op that adds elements of `bytes` bytes, in units of 64 bits.
UserOp add_words(std::size_t bytes) {
  return {"add words",
          [](const void* next, void* accumulated, std::size_t count, DataType type) {
            const auto* theirs = static_cast<const std::uint64_t*>(next);
            auto* mine = static_cast<std::uint64_t*>(accumulated);
            for (std::size_t i = 0; i < count * size_of(type) / sizeof *mine; ++i) mine[i] += theirs[i];
          },
          true, bytes};
}

TEST(UserOpElements, RefuseCountsThatCutThem) {
  run_communicators(2, [](Communicator& comm) {
    const UserOp op = add_words(16);
    const ReduceOp pairs = ReduceOp::user(op);
    std::vector<std::byte> in(96), out(96);
    const auto refused = [&](auto&& call, std::string_view why) {
      const Error error = error_of(call);
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_SAYS(error.what(), why);
    };
    refused(
        [&] { comm.all_reduce(std::span(in).first(24), std::span(out).first(24), pairs); },
        "input has 24 elements of u8, which is no multiple of 16: an element of user op \"add words\" has 16 bytes");
    refused([&] { comm.reduce(std::span(in).first(8), std::span(out).first(8), pairs, comm.rank()); },
            "input has 8 elements");
    refused([&] { comm.reduce_scatter(std::span(in).first(16), std::span(out).first(8), pairs); },
            "output has 8 elements");
    const std::vector<std::size_t> counts = {8, 24};
    const std::size_t mine = counts[static_cast<std::size_t>(comm.rank())];
    refused([&] { comm.reduce_scatter_v(std::span(in).first(32), std::span(out).first(mine), counts, pairs); },
            "output has ");
    refused([&] { (void)comm.all_reduce_async(std::span(in).first(4), std::span(out).first(4), pairs); },
            "input has 4 elements");
    Group group = comm.group();
    refused([&] { group.all_reduce(std::span(in).first(17), std::span(out).first(17), pairs); },
            "input has 17 elements");
    std::vector<double> values(3), sums(3);
    refused([&] { comm.all_reduce(values, sums, pairs); }, "input has 3 elements of f64, which is no multiple of 2");
    comm.all_reduce(in, out, pairs);  // the communicator is good
  });
}

TEST(UserOpElements, RefuseLengthsThatNoElementHas) {
  run_communicators(1, [](Communicator& comm) {
    std::vector<double> values(2), sums(2);
    for (const std::size_t bytes : {std::size_t{4}, std::size_t{12}, UserOp::kMaxElementBytes + 8}) {
      const UserOp op = add_words(bytes);
      const Error error = error_of([&] { comm.all_reduce(values, sums, ReduceOp::user(op)); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_SAYS(error.what(), "element_bytes of user op \"add words\" is " + std::to_string(bytes) +
                                    ": it must be a multiple of 8, the bytes of f64, up to 1024");
    }
  });
}

TEST(UserOpElements, AreAMismatchIfRanksDiffer) {
  std::atomic<int> mismatches = 0;
  run_communicators(2, [&](Communicator& comm) {
    const UserOp op = add_words(comm.rank() == 0 ? 8 : 16);
    std::vector<std::byte> in(32), out(32);
    const Error error = error_of([&] { comm.all_reduce(in, out, ReduceOp::user(op)); });
    if (error.code() == Errc::mismatch) ++mismatches;
    EXPECT_SAYS(
        error.what(),
        "rank 0 passed 32 x u8 user \"add words\" of 8 bytes, rank 1 passed 32 x u8 user \"add words\" of 16 bytes");
  });
  EXPECT_EQ(mismatches, 2);
}

TEST(UserOpElements, AreAlignedIfTheBuffersAreNot) {
  std::atomic<int> unaligned = 0;
  const UserOp op{"alignment",
                  [&](const void* next, void* accumulated, std::size_t, DataType) {
                    for (const void* pointer : {next, static_cast<const void*>(accumulated)})
                      if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) ++unaligned;
                  },
                  true, 48};  // 16 is the largest power of two that divides 48
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1}})
    run_hosts(hosts, [&](Communicator& comm) {
      for (const std::size_t count : {std::size_t{48}, std::size_t{48 * 5}, std::size_t{48 * 3001}}) {
        std::vector<std::byte> in(count + 1), out(count + 1);
        for (const char* backend : {"auto", "ring", "reduce_to_one"})
          comm.all_reduce(std::span(in).subspan(1), std::span(out).subspan(1), ReduceOp::user(op),
                          {.backend = backend});
      }
    });
  EXPECT_EQ(unaligned, 0);
}

/// Reduces vectors of the longest elements by all backends, in memory that `make` returns. Tuning with short messages
/// and chunks makes the library cut vectors wherever it may.
template <class Make>
void expect_sums_of_long_elements(Communicator& comm, const Make& make) {
  const UserOp op = add_words(UserOp::kMaxElementBytes);
  constexpr std::size_t kWords = UserOp::kMaxElementBytes / sizeof(std::uint64_t);
  for (const char* backend : {"auto", "hierarchical", "ring", "reduce_to_one"})
    for (const std::size_t elements : {1U, 2U, 7U, 130U}) {
      auto&& in = make(elements * kWords);
      auto&& out = make(elements * kWords);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = i + static_cast<std::size_t>(comm.rank());
      comm.all_reduce(in, out, ReduceOp::user(op), {.backend = backend});
      const auto p = static_cast<std::uint64_t>(comm.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < out.size(); ++i) wrong += out[i] == p * i + p * (p - 1) / 2 ? 0U : 1U;
      EXPECT_EQ(wrong, 0U) << backend << ", " << elements << " elements";
    }
}

TEST(UserOpElements, FitIntoTheShortestMessagesAndChunks) {
  TuningParameters shortest;
  shortest.inline_bytes = shortest.one_shot_bytes = 0;
  shortest.chunk_bytes = shortest.frame_bytes = shortest.wire_frame_bytes = 64;
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 0, 0, 0, 0},
                                        std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 2}})
    run_hosts(hosts,
              [](Communicator& comm) {
                expect_sums_of_long_elements(comm, [](std::size_t words) { return std::vector<std::uint64_t>(words); });
              },
              {.tuning = shortest});
}

TEST(UserOpElements, StayWholeOverTcp) {
  TuningParameters short_messages;
  short_messages.frame_bytes = short_messages.wire_frame_bytes = 1500;
  for (const int ranks : {2, 3})
    run_communicators(ranks,
                      [](Communicator& comm) {
                        expect_sums_of_long_elements(
                            comm, [](std::size_t words) { return std::vector<std::uint64_t>(words); });
                      },
                      {.tuning = short_messages, .transport = "tcp"});
}

TEST(UserOpElements, StayWholeInSharedBuffers) {
  TuningParameters direct;
  direct.zero_copy_bytes = 0;
  direct.chunk_bytes = 1000;
  for (const int ranks : {2, 3, 5})
    run_communicators(ranks,
                      [](Communicator& comm) {
                        expect_sums_of_long_elements(
                            comm, [&](std::size_t words) { return comm.allocate<std::uint64_t>(words); });
                      },
                      {.tuning = direct});
}

}  // namespace
}  // namespace collectives::testing
