// Tests of all_to_all, all_to_all_v, gather_v and scatter_v, by every algorithm that performs them. They compare every
// element, and the elements between displaced parts. steps_test proves the schedules themselves.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/error.hpp"
#include "core/tuning_parameters.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/worlds.hpp"

namespace collectives::testing {
namespace {

/// Element `i` of the block that rank `from` sends to rank `to`.
std::int32_t element(Rank from, Rank to, std::size_t i) {
  return from * 1'000'003 + to * 10'007 + static_cast<std::int32_t>(i % 9'973) + 1;
}

/// Layout of a buffer: parts in the order of ranks, in reverse order, or with gaps.
struct Layout {
  std::vector<std::size_t> counts, displacements;
  std::size_t elements = 0;

  enum class Form { packed, reversed, gaps };
  Layout(std::vector<std::size_t> counts_, Form form) : counts(std::move(counts_)) {
    displacements.resize(counts.size());
    const std::size_t gap = form == Form::gaps ? 3 : 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t r = form == Form::reversed ? counts.size() - 1 - i : i;
      displacements[r] = elements + gap;
      elements += gap + counts[r];
    }
    if (form == Form::packed) displacements.clear();
  }
  std::size_t first(std::size_t r) const {
    if (!displacements.empty()) return displacements[r];
    std::size_t before = 0;
    for (std::size_t i = 0; i < r; ++i) before += counts[i];
    return before;
  }
  operator PartLayout() const { return {counts, displacements}; }  // NOLINT(google-explicit-constructor)
};

/// Returns a buffer with element(...) in each part and -1 between parts. `value(r, i)`: element i of part r.
template <class Value>
std::vector<std::int32_t> filled(const Layout& layout, Value&& value) {
  std::vector<std::int32_t> buffer(layout.elements, -1);
  for (std::size_t r = 0; r < layout.counts.size(); ++r)
    for (std::size_t i = 0; i < layout.counts[r]; ++i) buffer[layout.first(r) + i] = value(static_cast<Rank>(r), i);
  return buffer;
}

class AllToAll : public ::testing::TestWithParam<std::tuple<const char*, World>> {
 protected:
  /// Calls `f` on every rank. Messages hold at most 4 KiB, so that most vectors take several rounds.
  void run(const std::function<void(Communicator&)>& f) const {
    CommunicatorOptions options;
    options.backend = std::get<0>(GetParam());
    options.timeout = std::chrono::seconds(60);
    TuningParameters tuning;
    tuning.wire_frame_bytes = tuning.frame_bytes = 4096;
    options.tuning = tuning;
    run_hosts(std::get<1>(GetParam()).hosts, f, options);
  }
};

TEST_P(AllToAll, MovesEveryBlock) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    for (const std::size_t each : {0u, 1u, 2u, 13u, 14u, 15u, 100u, 1023u, 9'001u}) {
      const Layout layout(std::vector<std::size_t>(p, each), Layout::Form::packed);
      const auto in = filled(layout, [&](Rank r, std::size_t i) { return element(comm.rank(), r, i); });
      const auto expected = filled(layout, [&](Rank r, std::size_t i) { return element(r, comm.rank(), i); });
      std::vector<std::int32_t> out(p * each, -1), all_in_place = in, some_in_place = in;
      comm.all_to_all(in, out);
      EXPECT_EQ(out, expected) << each;
      std::fill(out.begin(), out.end(), -1);
      comm.all_to_all_async(in, out, {.deterministic = true}).wait();
      EXPECT_EQ(out, expected) << each << " async";
      comm.all_to_all(all_in_place, all_in_place);
      EXPECT_EQ(all_in_place, expected) << each << " in place";
      std::vector<std::int32_t>& result = comm.rank() % 2 == 0 ? some_in_place : out;
      comm.all_to_all(some_in_place, result);
      EXPECT_EQ(result, expected) << each << " in place on even ranks";
    }
  });
}

TEST_P(AllToAll, MovesEveryBlockOfAllocatedMemory) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    for (const std::size_t each : {1u, 700u, 9'001u, 50'000u})
      for (const int in_place : {0, 1, 2}) {
        const Layout layout(std::vector<std::size_t>(p, each), Layout::Form::packed);
        const auto in = filled(layout, [&](Rank r, std::size_t i) { return element(comm.rank(), r, i); });
        const auto expected = filled(layout, [&](Rank r, std::size_t i) { return element(r, comm.rank(), i); });
        auto source = comm.allocate<std::int32_t>(p * each), destination = comm.allocate<std::int32_t>(p * each);
        std::copy(in.begin(), in.end(), source.begin());
        auto& result = in_place == 2 || (in_place == 1 && comm.rank() % 2 == 1) ? source : destination;
        comm.all_to_all(source, result);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), result.begin())) << each << ' ' << in_place;
      }
  });
}

/// Returns the count of the block from one rank to another: 0 for some pairs, and long for one pair.
std::size_t count_of(Rank from, Rank to, std::size_t scale) {
  const auto n = static_cast<std::size_t>(from * 7 + to * 3) % 5;
  return n * scale + (from == 0 && to == 1 ? 2'000 : 0);
}

TEST_P(AllToAll, MovesBlocksWithCountsOfTheirOwn) {
  run([](Communicator& comm) {
    const Rank self = comm.rank();
    for (const std::size_t scale : {0u, 1u, 300u, 5'000u})
      for (const auto form : {Layout::Form::packed, Layout::Form::reversed, Layout::Form::gaps}) {
        std::vector<std::size_t> sent, received;
        for (Rank r = 0; r < comm.size(); ++r) {
          sent.push_back(count_of(self, r, scale));
          received.push_back(count_of(r, self, scale));
        }
        const Layout from(sent, form), to(received, form);
        const auto in = filled(from, [&](Rank r, std::size_t i) { return element(self, r, i); });
        const auto expected = filled(to, [&](Rank r, std::size_t i) { return element(r, self, i); });
        std::vector<std::int32_t> out(to.elements, -1);
        comm.all_to_all_v(in, from, out, to);
        EXPECT_EQ(out, expected) << scale;
        std::fill(out.begin(), out.end(), -1);
        comm.all_to_all_v_async(in, from, out, to).wait();
        EXPECT_EQ(out, expected) << scale << " async";
        auto source = comm.allocate<std::int32_t>(in.size()), destination = comm.allocate<std::int32_t>(out.size());
        std::copy(in.begin(), in.end(), source.begin());
        std::fill(destination.begin(), destination.end(), -1);
        comm.all_to_all_v(source, from, destination, to);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), destination.begin())) << scale << " allocated";
      }
  });
}

TEST_P(AllToAll, LeavesNothingBehindThatChangesTheNextCall) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    constexpr std::size_t kEach = 20'000;
    const Options next{.backend = "auto"};
    const std::vector<std::size_t> one(p, 1);
    const std::vector<std::int32_t> sent(p, 1);
    std::vector<std::int32_t> received(p);
    auto in = comm.allocate<std::int32_t>(p * kEach), out = comm.allocate<std::int32_t>(p * kEach);
    for (std::size_t i = 0; i < in.size(); ++i) in.data()[i] = element(comm.rank(), 0, i);
    const auto sum_at = [p](std::size_t i) {
      std::int32_t sum = 0;
      for (std::size_t r = 0; r < p; ++r) sum += element(static_cast<Rank>(r), 0, i);
      return sum;
    };
    comm.all_to_all_v(sent, one, received, one);
    comm.all_reduce(in, out, ReduceOp::sum, next);
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out.data()[i], sum_at(i)) << i;
    comm.all_to_all_v(sent, one, received, one);
    const std::span<std::int32_t> part(out.data(), kEach);
    comm.reduce_scatter(in, part, ReduceOp::sum, next);
    for (std::size_t i = 0; i < kEach; ++i) ASSERT_EQ(part[i], sum_at(self * kEach + i)) << i;
    comm.all_to_all_v(sent, one, received, one);
    comm.all_gather(std::span<const std::int32_t>(in.data(), kEach), out, next);
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out.data()[i], element(static_cast<Rank>(i / kEach), 0, i % kEach)) << i;
  });
}

TEST_P(AllToAll, MovesBlocksWithCountsOfTheirOwnInPlace) {
  run([](Communicator& comm) {
    const Rank self = comm.rank();
    for (const bool allocated : {false, true})
      for (const std::size_t scale : {1u, 300u, 5'000u}) {
        std::vector<std::size_t> counts;
        for (Rank r = 0; r < comm.size(); ++r) counts.push_back(static_cast<std::size_t>(r + self) % 3 * scale);
        const Layout layout(counts, Layout::Form::gaps);
        auto data = filled(layout, [&](Rank r, std::size_t i) { return element(self, r, i); });
        const auto expected = filled(layout, [&](Rank r, std::size_t i) { return element(r, self, i); });
        auto shared = comm.allocate<std::int32_t>(data.size());
        std::copy(data.begin(), data.end(), shared.begin());
        const std::span<std::int32_t> buffer = allocated ? std::span(shared.begin(), shared.end()) : std::span(data);
        comm.all_to_all_v(buffer, layout, buffer, layout);
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), buffer.begin())) << scale << ' ' << allocated;
      }
  });
}

/// Tests of gather_v() and scatter_v(), which other backends perform.
class PartsOfTheRoot : public AllToAll {};

TEST_P(PartsOfTheRoot, AreGatheredAndScatteredWithCountsOfTheirOwn) {
  run([](Communicator& comm) {
    const Rank self = comm.rank();
    for (const Rank root : {0, comm.size() - 1})
      for (const std::size_t scale : {0u, 1u, 300u, 5'000u})
        for (const auto form : {Layout::Form::packed, Layout::Form::reversed, Layout::Form::gaps}) {
          std::vector<std::size_t> counts;
          for (Rank r = 0; r < comm.size(); ++r) counts.push_back(count_of(r, 1, scale));
          const Layout layout(counts, form);
          const auto whole = filled(layout, [&](Rank r, std::size_t i) { return element(r, 1, i); });
          std::vector<std::int32_t> part(counts[static_cast<std::size_t>(self)]);
          for (std::size_t i = 0; i < part.size(); ++i) part[i] = element(self, 1, i);

          std::vector<std::int32_t> gathered(self == root ? layout.elements : 0, -1), scattered(part.size());
          comm.gather_v(part, gathered, self == root ? PartLayout(layout) : PartLayout(), root);
          if (self == root) {
            EXPECT_EQ(gathered, whole) << scale << " to " << root;
          }
          comm.scatter_v(self == root ? ConstBuffer(whole) : ConstBuffer(), scattered,
                         self == root ? PartLayout(layout) : PartLayout(), root);
          EXPECT_EQ(scattered, part) << scale << " from " << root;

          auto in_place = whole;
          const std::span<std::int32_t> own =
              self == root ? std::span(in_place).subspan(layout.first(static_cast<std::size_t>(root)), part.size())
                           : std::span(part);
          comm.gather_v_async(own, self == root ? Buffer(in_place) : Buffer(),
                              self == root ? PartLayout(layout) : PartLayout(), root)
              .wait();
          comm.scatter_v_async(self == root ? ConstBuffer(in_place) : ConstBuffer(), own,
                               self == root ? PartLayout(layout) : PartLayout(), root)
              .wait();
          EXPECT_TRUE(self != root || in_place == whole) << scale << " in place at " << root;
        }
  });
}

TEST_P(PartsOfTheRoot, AreScatteredInPlaceAlsoIfTheyOverlapTheRootsOwn) {
  run([](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
    for (const std::size_t each : {2u, 600u, 9'000u})
      for (const Rank root : {0, comm.size() - 1}) {
        std::vector<std::size_t> counts(p, each), displacements(p);
        for (std::size_t r = 0; r < p; ++r) displacements[r] = r * each / 2;
        std::vector<std::int32_t> whole(displacements.back() + each), part(each);
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = element(root, 0, i);
        const auto before = whole;
        const std::span<std::int32_t> own = std::span(whole).subspan(displacements[self], each);
        if (comm.rank() == root)
          comm.scatter_v(whole, own, {counts, displacements}, root);
        else
          comm.scatter_v(ConstBuffer(), part, {}, root);
        EXPECT_EQ(whole, before) << each;
        EXPECT_TRUE(comm.rank() == root || std::ranges::equal(part, own)) << each;
      }
  });
}

/// Makes a call that must fail with a mismatch, at the latest in the barrier after it. `run` runs a function on all
/// ranks. Returns the text of the error, which must be equal on all ranks.
template <class Run, class Call>
std::string mismatch_text_of(Run&& run, Call&& call) {
  std::mutex mutex;
  std::set<std::string> texts;
  run([&](Communicator& comm) {
    const Error error = error_of([&] {
      call(comm);
      comm.barrier();
    });
    EXPECT_EQ(error.code(), Errc::mismatch) << error.what();
    const std::lock_guard lock(mutex);
    texts.insert(error.what());
  });
  EXPECT_EQ(texts.size(), 1u) << *texts.begin() << " | " << *texts.rbegin();
  return *texts.begin();
}

TEST_P(AllToAll, NamesBothRanksAndBothCountsIfTheyDiffer) {
  const World& world = std::get<1>(GetParam());
  if (world.ranks() < 2) GTEST_SKIP() << "a rank alone agrees with itself";
  const auto call = [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<std::size_t> sent(p, 5), received(p, 5);
    if (comm.rank() == 0) received[1] = 7;
    std::vector<std::int32_t> in(5 * p), out(5 * p + 2);
    comm.all_to_all_v(in, sent, std::span(out).first(comm.rank() == 0 ? 5 * p + 2 : 5 * p), received);
  };
  EXPECT_SAYS(mismatch_text_of([&](auto&& f) { run(f); }, call), "rank 1 sends 5 elements to rank 0, which expects 7");
}

TEST_P(PartsOfTheRoot, NamesTheRootAndTheRankIfTheirCountsDiffer) {
  const World& world = std::get<1>(GetParam());
  if (world.ranks() < 2) GTEST_SKIP() << "a rank alone agrees with itself";
  for (const bool gathers : {true, false}) {
    const auto call = [gathers](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size());
      const std::vector<std::size_t> counts(p, 5);
      std::vector<std::int32_t> part(comm.rank() == 1 ? 6 : 5), whole(5 * p);
      const PartLayout parts = comm.rank() == 0 ? PartLayout(counts) : PartLayout();
      if (gathers)
        comm.gather_v(part, comm.rank() == 0 ? Buffer(whole) : Buffer(), parts, 0);
      else
        comm.scatter_v(comm.rank() == 0 ? ConstBuffer(whole) : ConstBuffer(), part, parts, 0);
    };
    EXPECT_SAYS(mismatch_text_of([&](auto&& f) { run(f); }, call),
                gathers ? "rank 1 sends 6 elements to rank 0, which expects 5"
                        : "rank 0 sends 5 elements to rank 1, which expects 6");
  }
}

TEST_P(PartsOfTheRoot, AreReportedAlikeIfTheCountsOfSeveralRanksDiffer) {
  const World& world = std::get<1>(GetParam());
  if (world.ranks() < 2) GTEST_SKIP() << "a rank alone agrees with itself";
  const auto call = [](Communicator& comm) {
    const auto p = static_cast<std::size_t>(comm.size());
    const std::vector<std::size_t> counts(p, 5);
    std::vector<std::int32_t> part(comm.rank() == 0 ? 5 : 6), whole(5 * p);
    const bool at_root = comm.rank() == 0;
    comm.scatter_v(at_root ? ConstBuffer(whole) : ConstBuffer(), part, at_root ? PartLayout(counts) : PartLayout(), 0);
  };
  EXPECT_SAYS(mismatch_text_of([&](auto&& f) { run(f); }, call), "rank 0 sends 5 elements to rank");
}

std::vector<World> all_to_all_worlds() {
  std::vector<World> all = worlds();
  all.push_back({"4hosts_of_2", {0, 0, 1, 1, 2, 2, 3, 3}});
  return all;
}

const auto kBackendAndWorld = [](const auto& parameters) {
  return std::string(std::get<0>(parameters.param)) + "_of_" + std::get<1>(parameters.param).name;
};
INSTANTIATE_TEST_SUITE_P(, AllToAll,
                         ::testing::Combine(::testing::Values("auto", "hierarchical_pairwise"),
                                            ::testing::ValuesIn(all_to_all_worlds())),
                         kBackendAndWorld);
INSTANTIATE_TEST_SUITE_P(, PartsOfTheRoot,
                         ::testing::Combine(::testing::Values("auto", "hierarchical"),
                                            ::testing::ValuesIn(all_to_all_worlds())),
                         kBackendAndWorld);

TEST(PooledAllToAll, MovesEveryBlockInOneMessageForEachPairOfHosts) {
  for (const auto& hosts : {std::vector<int>{0, 0, 1, 1}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 1, 1, 2, 2}}) {
    CommunicatorOptions options;
    options.backend = "hierarchical_pooled";
    run_hosts(
        hosts,
        [](Communicator& comm) {
          const auto p = static_cast<std::size_t>(comm.size());
          for (const std::size_t each : {1u, 16u, 500u})
            for (const bool in_place : {false, true}) {
              const Layout layout(std::vector<std::size_t>(p, each), Layout::Form::packed);
              auto in = filled(layout, [&](Rank r, std::size_t i) { return element(comm.rank(), r, i); });
              std::vector<std::int32_t> out(p * each, -1);
              std::vector<std::int32_t>& result = in_place ? in : out;
              comm.all_to_all(in, result);
              EXPECT_EQ(result, filled(layout, [&](Rank r, std::size_t i) { return element(r, comm.rank(), i); }))
                  << each;
            }
          const Error error = error_of([&] {
            std::vector<std::int32_t> in(p << 20), out(p << 20);
            comm.all_to_all(in, out);
          });
          EXPECT_EQ(error.code(), Errc::unsupported);
          EXPECT_SAYS(std::string(error.what()), "fit in a message");
        },
        options);
  }
}

TEST(AllToAllOfOtherBackends, IsRefusedAndTheErrorNamesTheBackendThatHasIt) {
  for (const char* backend : {"ring", "reduce_to_one"}) {
    CommunicatorOptions options;
    options.backend = backend;
    run_hosts(
        {0, 0, 1},
        [&](Communicator& comm) {
          std::vector<float> in(3), out(3);
          const Error error = error_of([&] { comm.all_to_all(in, out); });
          EXPECT_EQ(error.code(), Errc::unsupported);
          EXPECT_SAYS(std::string(error.what()), "backends that have one: hierarchical");
          EXPECT_EQ(error.rank(), comm.rank());
          comm.all_to_all(in, out, {.backend = "hierarchical"});
          const std::vector<std::size_t> counts(3, 1);
          const Error counted = error_of([&] {
            comm.gather_v(std::span(in).first(1), comm.rank() == 0 ? Buffer(out) : Buffer(),
                          comm.rank() == 0 ? PartLayout(counts) : PartLayout(), 0);
          });
          EXPECT_EQ(counted.code(), Errc::unsupported) << counted.what();
          EXPECT_SAYS(std::string(counted.what()), "backends that have one: hierarchical");
          EXPECT_EQ(counted.rank(), comm.rank());
          const Error explained = error_of([&] { comm.explain(Collective::all_to_all, 3, DataType::f32); });
          EXPECT_EQ(explained.rank(), comm.rank());
        },
        options);
  }
}

}  // namespace
}  // namespace collectives::testing
