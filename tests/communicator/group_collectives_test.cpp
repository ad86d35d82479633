// Tests of groups that hold different collectives and lists of tensors: results, shared calls, buffers in place, and
// refusals. An oracle in the test computes the expected results from the numbers of ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int>> kGroupWorlds = {{0}, {0, 0}, {0, 0, 0}, {0, 0, 1}, {0, 1}};

/// Value of element i that a rank contributes to member `member`.
int given(std::size_t rank, std::size_t member, std::size_t i) {
  return static_cast<int>(1000 * rank + 17 * member + i % 97);
}

/// One member of each kind, of `count` elements for each rank, and a check of its results.
class Members {
 public:
  Members(Communicator& comm, std::size_t count, std::size_t first)
      : p_(static_cast<std::size_t>(comm.size())),
        self_(static_cast<std::size_t>(comm.rank())),
        root_(comm.size() - 1),
        count_(count),
        first_(first),
        own_(count),
        whole_(p_ * count),
        sum_(count),
        part_(count),
        listed_part_(count + self_),
        gathered_(p_ * count),
        sent_(count),
        reduced_(count, -1) {
    for (std::size_t r = 0; r < p_; ++r) {
      outputs_.emplace_back(count + r, -1);
      inputs_.emplace_back(count + r);
      for (std::size_t i = 0; i < inputs_[r].size(); ++i) inputs_[r][i] = given(self_, first_ + r, i);
    }
    own_with_self_.resize(count + self_);
    for (std::size_t i = 0; i < own_with_self_.size(); ++i) own_with_self_[i] = given(self_, first_, i);
    for (std::size_t i = 0; i < count; ++i) own_[i] = given(self_, first_, i);
    if (static_cast<Rank>(self_) == root_) sent_ = own_;
    for (std::size_t i = 0; i < p_ * count; ++i) whole_[i] = given(self_, first_, i);
  }
  void add_to(Group& group) {
    group.all_reduce(own_, sum_);
    group.broadcast(sent_, root_);
    group.all_gather(own_, gathered_);
    const std::vector<Buffer> outputs(outputs_.begin(), outputs_.end());
    group.all_gather(own_with_self_, outputs);
    group.reduce_scatter(whole_, part_);
    const std::vector<ConstBuffer> inputs(inputs_.begin(), inputs_.end());
    group.reduce_scatter(inputs, listed_part_);
    group.reduce(own_, reduced_, ReduceOp::sum, root_);
    group.barrier();
  }
  void check() const {
    for (std::size_t i = 0; i < count_; ++i) {
      ASSERT_EQ(sum_[i], summed(first_, i)) << i;
      ASSERT_EQ(sent_[i], given(static_cast<std::size_t>(root_), first_, i)) << i;
      ASSERT_EQ(part_[i], summed(first_, self_ * count_ + i)) << i;
      ASSERT_EQ(reduced_[i], static_cast<Rank>(self_) == root_ ? summed(first_, i) : -1) << i;
    }
    for (std::size_t i = 0; i < listed_part_.size(); ++i) ASSERT_EQ(listed_part_[i], summed(first_ + self_, i)) << i;
    for (std::size_t r = 0; r < p_; ++r) {
      for (std::size_t i = 0; i < count_; ++i) ASSERT_EQ(gathered_[r * count_ + i], given(r, first_, i)) << r << i;
      for (std::size_t i = 0; i < count_ + r; ++i) ASSERT_EQ(outputs_[r][i], given(r, first_, i)) << r << i;
    }
  }

 private:
  int summed(std::size_t member, std::size_t i) const {
    int sum = 0;
    for (std::size_t r = 0; r < p_; ++r) sum += given(r, member, i);
    return sum;
  }
  std::size_t p_, self_;
  Rank root_;
  std::size_t count_, first_;
  std::vector<int> own_, whole_, sum_, part_, listed_part_, gathered_, sent_, reduced_, own_with_self_;
  std::vector<std::vector<int>> inputs_, outputs_;
};

TEST(GroupOfCollectives, GivesTheResultsOfEachMember) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      Group group = comm.group();
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{30'000}}) {
        std::vector<Members> all;
        for (std::size_t first = 0; first < 3; ++first) all.emplace_back(comm, count + first, 10 * first);
        for (Members& members : all) members.add_to(group);
        if (count == 3)
          group.run_async().wait();
        else
          group.run();
        for (const Members& members : all) members.check();
      }
    });
}

TEST(GroupOfCollectives, GivesTheResultsOfAllToAllsGathersScattersAndScans) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      const Rank root = comm.size() - 1;
      const bool is_root = comm.rank() == root;
      for (const std::size_t count : {std::size_t{0}, std::size_t{3}, std::size_t{30'000}}) {
        std::vector<int> own(p * count), swapped(own), gathered(own), part(count), sums(2 * count), before(2 * count);
        for (std::size_t i = 0; i < own.size(); ++i) own[i] = given(self, 0, i);
        std::vector<int> swapped_v(own), gathered_v(own), part_v(count);
        std::vector<std::size_t> counts(p, count);
        const std::span<const int> mine = std::span(own).first(count);
        Group group = comm.group();
        group.all_to_all(own, swapped);
        group.all_to_all_v(own, counts, swapped_v, counts);
        group.gather(mine, gathered, root);
        group.gather_v(mine, gathered_v, is_root ? PartLayout(counts) : PartLayout(), root);
        group.scatter(own, part, root);
        group.scatter_v(own, part_v, is_root ? PartLayout(counts) : PartLayout(), root);
        for (std::size_t one = 0; one < 2; ++one) {
          group.scan(mine, std::span(sums).subspan(one * count, count));
          group.exclusive_scan(mine, std::span(before).subspan((1 - one) * count, count));
        }
        std::ranges::fill(counts, 7);  // the group has copies of the lists
        group.run();
        for (std::size_t i = 0; i < own.size() && count > 0; ++i) {
          const std::size_t from = i / count;
          ASSERT_EQ(swapped[i], given(from, 0, self * count + i % count)) << i;
          if (is_root) {
            ASSERT_EQ(gathered[i], given(from, 0, i % count)) << i;
          }
        }
        EXPECT_EQ(swapped_v, swapped);
        EXPECT_EQ(part_v, part);
        EXPECT_TRUE(!is_root || gathered_v == gathered);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(part[i], given(static_cast<std::size_t>(root), 0, self * count + i)) << i;
          int sum = 0;
          for (std::size_t r = 0; r < self; ++r) sum += given(r, 0, i);
          for (std::size_t at = i; at < 2 * count; at += count) {
            ASSERT_EQ(before[at], sum) << at;
            ASSERT_EQ(sums[at], sum + given(self, 0, i)) << at;
          }
        }
      }
      const Counters counters = comm.counters();
      EXPECT_EQ(counters[Collective::all_to_all].calls, 6U);
      // Short scans share a call. Scans of 120 kB share one between hosts only.
      EXPECT_EQ(counters[Collective::scan].calls, comm.topology().one_host() ? 4U : 3U);
    });
}

TEST(GroupOfCollectives, GathersAndScattersInPlaceAtAnyRoot) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      for (const std::size_t count : {std::size_t{3}, std::size_t{30'000}})
        for (Rank root = 0; root < comm.size(); ++root) {
          const bool is_root = comm.rank() == root;
          std::vector<int> gathered(p * count, -1), scattered(p * count), own(count), part(count);
          const std::span<int> source = is_root ? std::span(gathered).subspan(self * count, count) : std::span(own);
          const std::span<int> result = is_root ? std::span(scattered).subspan(self * count, count) : std::span(part);
          for (std::size_t i = 0; i < count; ++i) source[i] = given(self, 0, i);
          for (std::size_t i = 0; i < p * count; ++i) scattered[i] = given(self, 1, i);
          Group group = comm.group();
          group.gather(source, gathered, root);
          group.scatter(scattered, result, root);
          group.run();
          for (std::size_t i = 0; is_root && i < p * count; ++i)
            ASSERT_EQ(gathered[i], given(i / count, 0, i % count)) << i;
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(result[i], given(static_cast<std::size_t>(root), 1, self * count + i)) << i;
        }
    });
}

TEST(GroupOfCollectives, SharesCallsOfShortAllToAllsGathersAndScattersAndRepeatsLongOnes) {
  for (const auto& hosts : kGroupWorlds)
    for (const std::size_t count : {3u, 200u, 300'000u})  // 200 elements travel in cache lines inside a host
      run_hosts(hosts, [count](Communicator& comm) {
        constexpr std::size_t kMembers = 3;
        const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
        const Rank root = comm.size() - 1;
        std::vector<std::vector<int>> given_to_all(kMembers, std::vector<int>(p * count)), swapped(given_to_all),
            gathered(given_to_all), part(kMembers, std::vector<int>(count));
        for (std::size_t m = 0; m < kMembers; ++m)
          for (std::size_t i = 0; i < p * count; ++i) given_to_all[m][i] = given(self, m, i);
        Group group = comm.group();
        for (const bool blocking : {true, false}) {
          for (std::size_t m = 0; m < kMembers; ++m) group.all_to_all(given_to_all[m], swapped[m]);
          for (std::size_t m = 0; m < kMembers; ++m) {
            group.gather(std::span(given_to_all[m]).first(count), gathered[m], root);
            group.scatter(given_to_all[m], part[m], root);
          }
          if (blocking)
            group.run();
          else
            group.run_async().wait();
          for (std::size_t m = 0; m < kMembers; ++m) {
            for (std::size_t i = 0; i < p * count; ++i) {
              ASSERT_EQ(swapped[m][i], given(i / count, m, self * count + i % count)) << m << " " << i;
              ASSERT_EQ(gathered[m][i], comm.rank() == root ? given(i / count, m, i % count) : 0) << m << " " << i;
            }
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_EQ(part[m][i], given(static_cast<std::size_t>(root), m, self * count + i)) << m << " " << i;
            for (auto* const results : {&swapped[m], &gathered[m], &part[m]}) std::ranges::fill(*results, 0);
          }
        }
        const bool fuses = count == 3 || (count == 200 && comm.topology().hosts.size() > 1);
        const std::uint64_t calls = fuses ? 2 : 2 * kMembers;  // of two runs
        for (const Collective one : {Collective::all_to_all, Collective::gather, Collective::scatter})
          EXPECT_EQ(comm.counters()[one].calls, calls) << to_string(one);
      });
}

/// Expects that a group with the operations that `add` adds is refused with a text that contains `why`.
template <class Add>
void expect_refused_group(Communicator& comm, Add&& add, std::string_view why) {
  Group group = comm.group();
  const Error error = error_of([&] {
    add(group);
    group.run();
  });
  EXPECT_EQ(error.code(), Errc::invalid_argument);
  EXPECT_SAYS(error.what(), why);
}

// ---- displacements ----

/// Sum over `ranks` ranks of their given elements.
int sum_of_given(std::size_t ranks, std::size_t member, std::size_t i) {
  int sum = 0;
  for (std::size_t r = 0; r < ranks; ++r) sum += given(r, member, i);
  return sum;
}

/// Parts in the reverse order of ranks, with a gap before each and behind the last one. The part of rank 1 is empty.
struct PartsWithGaps {
  PartsWithGaps(std::size_t p, std::size_t scale) : counts(p), displacements(p) {
    constexpr std::size_t kGap = 2;  // elements
    for (std::size_t r = p; r-- > 0;) {
      counts[r] = r == 1 ? 0 : scale + r;
      displacements[r] = length + kGap;
      length = displacements[r] + counts[r];
    }
    length += kGap;
  }
  PartLayout layout() const { return {counts, displacements}; }
  std::size_t sum() const { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

  std::vector<std::size_t> counts, displacements;
  std::size_t length = 0;
};

TEST(GroupOfCollectives, PlacesPartsByDisplacementsAndKeepsTheGaps) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      for (const std::size_t scale : {std::size_t{4}, std::size_t{30'000}})
        for (const bool in_place : {false, true}) {
          const PartsWithGaps parts(p, scale);
          const std::size_t count = parts.counts[self], first = parts.displacements[self];
          std::vector<int> own(count), all(parts.length, -1), dense(parts.sum(), -1), expected(all);
          std::vector<int> whole(parts.length), part(count), sums(parts.length);
          const std::span<int> source = in_place ? std::span(all).subspan(first, count) : std::span(own);
          const std::span<int> result = in_place ? std::span(whole).subspan(first, count) : std::span(part);
          for (std::size_t i = 0; i < count; ++i) own[i] = source[i] = given(self, 1, i);
          for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = given(self, 2, i);
          const std::vector<int> addend(whole);
          for (std::size_t r = 0; r < p; ++r)
            for (std::size_t i = 0; i < parts.counts[r]; ++i) expected[parts.displacements[r] + i] = given(r, 1, i);

          PartsWithGaps lists(parts);
          Group group = comm.group();
          group.all_gather_v(source, all, lists.layout());
          group.all_gather_v(own, dense, lists.counts);
          group.reduce_scatter_v(whole, result, lists.layout());
          group.all_reduce(addend, sums);
          std::ranges::fill(lists.counts, 7);  // the group has copies of the lists
          std::ranges::fill(lists.displacements, 7);
          const std::uint64_t calls_before = comm.counters()[Collective::all_gather].calls;
          group.run();
          if (scale == 4) {
            EXPECT_EQ(comm.counters()[Collective::all_gather].calls, calls_before + 1) << "displaced and dense parts";
          }
          ASSERT_EQ(all, expected) << scale << in_place;
          std::size_t at = 0;
          for (std::size_t r = 0; r < p; ++r)
            for (std::size_t i = 0; i < parts.counts[r]; ++i) ASSERT_EQ(dense[at++], given(r, 1, i)) << r << " " << i;
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(result[i], sum_of_given(p, 2, first + i)) << i;
          for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], sum_of_given(p, 2, i)) << i;
          if (!in_place) {
            ASSERT_EQ(whole, addend);
          }
        }
    });
}

TEST(GroupOfCollectives, ReducesPartsOfOneInputThatOverlap) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      for (const std::size_t scale : {std::size_t{4}, std::size_t{30'000}}) {
        std::vector<int> whole(p * scale + scale), sums(whole.size());
        for (std::size_t i = 0; i < whole.size(); ++i) whole[i] = given(self, 3, i);
        const std::vector<std::size_t> counts(p, scale);
        std::vector<std::size_t> by_half(p), all_equal(p, 1);
        for (std::size_t r = 0; r < p; ++r) by_half[r] = r * (scale / 2);
        std::vector<int> half(scale), equal(scale);
        Group group = comm.group();
        group.reduce_scatter_v(whole, half, {counts, by_half});
        group.reduce_scatter_v(whole, equal, {counts, all_equal});
        group.all_reduce(whole, sums);
        const std::uint64_t calls_before = comm.counters()[Collective::reduce_scatter].calls;
        group.run();
        if (scale == 4) {
          EXPECT_EQ(comm.counters()[Collective::reduce_scatter].calls, calls_before + 1);
        }
        for (std::size_t i = 0; i < scale; ++i) {
          ASSERT_EQ(half[i], sum_of_given(p, 3, by_half[self] + i)) << i;
          ASSERT_EQ(equal[i], sum_of_given(p, 3, 1 + i)) << i;
        }
        for (std::size_t i = 0; i < sums.size(); ++i) ASSERT_EQ(sums[i], sum_of_given(p, 3, i)) << i;
      }
    });
}

TEST(GroupOfCollectives, RefusesDisplacedPartsThatOverlapAnotherOutputOrLeaveTheBuffer) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> mine(3), all(10), other(3);
    const std::vector<std::size_t> counts{3, 3}, apart{6, 1}, overlapping{0, 2}, beyond{0, 8};
    const auto refused = [&](auto&& add, std::string_view why) { expect_refused_group(comm, add, why); };
    refused(
        [&](Group& group) {
          group.all_gather_v(mine, all, {counts, overlapping});
        },
        "parts 0 and 1 of output overlap");
    refused(
        [&](Group& group) {
          group.reduce_scatter_v(all, mine, {counts, beyond});
        },
        "part 1 of input has 3 elements from element 8 on, and input has 10 elements");
    refused(
        [&](Group& group) {
          group.all_gather_v(mine, all, {counts, apart});
          group.all_reduce(other, std::span(all).subspan(7, 3));
        },
        "the output of tensor 1 and the output of tensor 2 overlap in a group of 2 tensors");
    Group group = comm.group();
    std::ranges::fill(other, comm.rank());
    group.all_gather_v(mine, all, {counts, apart});
    group.all_reduce(std::span(other).first(2), std::span(all).subspan(4, 2));  // a gap between the parts
    group.run();
    EXPECT_EQ(all[4], 1);
    EXPECT_EQ(all[5], 1);
  });
}

TEST(GroupOfCollectives, WithDisplacementsThatDifferBetweenRanksIsAMismatch) {
  const std::vector<std::size_t> counts{3, 3, 3}, usual{0, 4, 8}, other{1, 4, 8};
  for (const bool gathers : {true, false})
    for (const PartLayout& of_rank_1 : {PartLayout(counts, other), PartLayout(counts)})
      run_communicators(3, [&](Communicator& comm) {
        std::vector<float> mine(3), all(11);
        const PartLayout parts = comm.rank() == 1 ? of_rank_1 : PartLayout(counts, usual);
        const std::size_t length = parts.displacements.empty() ? 9 : all.size();
        Group group = comm.group();
        if (gathers)
          group.all_gather_v(mine, std::span(all).first(length), parts);
        else
          group.reduce_scatter_v(std::span(all).first(length), mine, parts);
        const Error error = error_of([&] {
          group.run();
          comm.barrier();
        });
        EXPECT_EQ(error.code(), Errc::mismatch);
        EXPECT_SAYS(error.what(), "displacements of a tensor differ");
      });
}

TEST(GroupOfCollectives, WithPartsThatDifferBetweenRanksIsAMismatchAlsoIfSumsOfPartsAreEqual) {
  const std::vector<std::size_t> rising{1, 2}, falling{2, 1}, turned{2, 0};
  const PartLayout pairs[][2] = {{rising, falling}, {{rising, turned}, rising}};  // rank 1 swaps the two layouts
  for (const bool gathers : {true, false})
    for (const auto& layouts : pairs)
      run_communicators(2, [&](Communicator& comm) {
        std::vector<float> mine[2], all[2];
        Group group = comm.group();
        for (std::size_t tensor = 0; tensor < 2; ++tensor) {
          const PartLayout& parts = layouts[tensor ^ static_cast<std::size_t>(comm.rank())];
          mine[tensor].resize(parts.counts[static_cast<std::size_t>(comm.rank())]);
          all[tensor].resize(3);
          if (gathers)
            group.all_gather_v(mine[tensor], all[tensor], parts);
          else
            group.reduce_scatter_v(all[tensor], mine[tensor], parts);
        }
        const Error error = error_of([&] {
          group.run();
          comm.barrier();
        });
        EXPECT_EQ(error.code(), Errc::mismatch);
        EXPECT_SAYS(error.what(), "; counts or displacements of a tensor differ");
      });
}

TEST(GroupOfCollectives, RefusesAnInputThatAScatterInPlaceOverwrites) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> whole(20), sum(10);
    const std::span<int> mine = std::span(whole).subspan(static_cast<std::size_t>(comm.rank()) * 10, 10);
    Group group = comm.group();
    group.scatter(whole, mine, comm.rank());  // both ranks name themselves as root
    group.all_reduce(mine, sum);
    const Error error = error_of([&] { group.run(); });
    EXPECT_EQ(error.code(), Errc::invalid_argument) << error.what();
    EXPECT_SAYS(error.what(), "the output of tensor 1 and the input of tensor 2 overlap");
  });
}

TEST(GroupOfCollectives, SharesCallsOfEqualCollectiveTypeOpRootAndOptions) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::vector<int>> data(6, std::vector<int>(5, 1)), wide(2, std::vector<int>(10));
    Group group = comm.group();
    for (std::size_t i = 0; i < 3; ++i) group.broadcast(data[i], 0);
    group.broadcast(data[3], 1);
    group.all_gather(data[4], wide[0]);
    group.all_gather(data[5], wide[1]);
    group.barrier();
    group.barrier();
    group.run();
    const Counters counters = comm.counters();
    EXPECT_EQ(counters[Collective::broadcast].calls, 2U) << "one for each root";
    EXPECT_EQ(counters[Collective::all_gather].calls, 1U);
    EXPECT_EQ(counters[Collective::barrier].calls, 1U);
  });
}

TEST(GroupOfCollectives, PerformsLongMembersInTheirOwnMemory) {
  run_communicators(2, [](Communicator& comm) {
    constexpr std::size_t kLong = 40'000;  // more than 64 KiB of i32
    SharedArray<int> first = comm.allocate<int>(kLong), second = comm.allocate<int>(kLong);
    std::ranges::fill(first, 1);
    std::ranges::fill(second, 2);
    Group group = comm.group();
    group.all_reduce(first, first);
    group.all_reduce(second, second);
    group.run();
    EXPECT_EQ(comm.counters()[Collective::all_reduce].calls, 2U);
    EXPECT_EQ(std::ranges::count(first, 2), static_cast<std::ptrdiff_t>(kLong));
    EXPECT_EQ(std::ranges::count(second, 4), static_cast<std::ptrdiff_t>(kLong));
  });
}

TEST(GroupOfCollectives, WorksOnAdjacentTensorsOfAListInPlace) {
  for (const auto& hosts : kGroupWorlds)
    run_hosts(hosts, [](Communicator& comm) {
      const auto p = static_cast<std::size_t>(comm.size()), self = static_cast<std::size_t>(comm.rank());
      constexpr std::size_t kCount = 50'000;
      SharedArray<int> flat = comm.allocate<int>(p * kCount), sums = comm.allocate<int>(p * kCount);
      std::vector<Buffer> outputs;
      std::vector<ConstBuffer> inputs;
      for (std::size_t r = 0; r < p; ++r) {
        outputs.emplace_back(flat.data() + r * kCount, kCount, DataType::i32);
        inputs.emplace_back(sums.data() + r * kCount, kCount, DataType::i32);
      }
      std::fill_n(flat.data() + self * kCount, kCount, comm.rank() + 1);
      std::ranges::fill(sums, comm.rank());
      Group group = comm.group();
      group.all_gather(ConstBuffer(outputs[self]), outputs);  // in place
      group.reduce_scatter(inputs, Buffer(sums.data() + self * kCount, kCount, DataType::i32));
      group.run();
      for (std::size_t i = 0; i < p * kCount; ++i) ASSERT_EQ(flat[i], static_cast<int>(i / kCount) + 1) << i;
      const int sum = comm.size() * (comm.size() - 1) / 2;
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(sums[self * kCount + i], sum) << i;
    });
}

// ---- refusals ----

TEST(GroupOfCollectives, InAnotherOrderIsAMismatchThatNamesBoth) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<float> sum(10), sent(20);
                      Group group = comm.group();
                      const Error error = error_of([&] {
                        if (comm.rank() == 0) group.all_reduce(sum, sum);
                        group.broadcast(sent, 0);
                        if (comm.rank() == 1) group.all_reduce(sum, sum);
                        group.run();
                        comm.barrier();
                      });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "rank 0 passed all_reduce of 10 x f32");
                      EXPECT_SAYS(error.what(), "rank 1 passed broadcast of 20 x f32");
                    },
                    {.timeout = 20s});
}

TEST(GroupOfCollectives, WithOtherLengthsIsAMismatchThatNamesBoth) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<float> first(10), second(20);
                      Group group = comm.group();
                      const Error error = error_of([&] {
                        group.broadcast(comm.rank() == 0 ? first : second, 0);
                        group.broadcast(comm.rank() == 0 ? second : first, 0);
                        group.run();
                        comm.barrier();
                      });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "30 x f32 in a group of 10, 20");
                      EXPECT_SAYS(error.what(), "30 x f32 in a group of 20, 10");
                    },
                    {.timeout = 20s});
}

TEST(GroupOfCollectives, OfOneTensorOnOneRankAndOfTwoOnAnotherIsAMismatchThatNamesTheLengths) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<float> data(10);
                      const std::span<float> all(data);
                      Group group = comm.group();
                      const Error error = error_of([&] {
                        if (comm.rank() == 0) {
                          group.all_reduce(all, all);
                        } else {
                          group.all_reduce(all.first(5), all.first(5));
                          group.all_reduce(all.last(5), all.last(5));
                        }
                        group.run();
                        comm.barrier();
                      });
                      EXPECT_EQ(error.code(), Errc::mismatch);
                      EXPECT_SAYS(error.what(), "10 x f32 in a group of 10");
                      EXPECT_SAYS(error.what(), "10 x f32 in a group of 5, 5");
                      EXPECT_SAYS(error.what(), "; lengths differ first at tensor 0: ");
                    },
                    {.timeout = 20s});
}

TEST(GroupOfCollectives, WithABadListIsRefused) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> mine(4), a(4), b(4), c(5);
    std::vector<double> wide(4);
    const auto refused = [&](auto&& add, std::string_view why) { expect_refused_group(comm, add, why); };
    refused([&](Group& group) { group.all_gather(mine, std::vector<Buffer>{a}); }, ": 1 outputs for 2 ranks");
    refused(
        [&](Group& group) {
          group.all_gather(mine, std::vector<Buffer>{a, wide});
        },
        ": outputs[0] is f32, outputs[1] is f64");
    refused([&](Group& group) { group.all_gather(mine, std::vector<Buffer>{c, c}); }, ": input has 4");
    refused(
        [&](Group& group) {
          group.all_gather(mine, std::vector<Buffer>{a, Buffer(nullptr, 4, DataType::f32)});
        },
        ": outputs[1] is null with 4 elements");
    refused(
        [&](Group& group) {
          group.all_gather(mine, std::vector<Buffer>{a, a});
        },
        ": buffers of tensor 1 overlap without being in place");
    refused(
        [&](Group& group) {
          group.broadcast(b, 0);
          group.all_gather(mine, std::vector<Buffer>{a, b});
        },
        ": the output of tensor 1 and the output of tensor 2 overlap in a group of 2 tensors");
    refused(
        [&](Group& group) {
          group.reduce_scatter(std::vector<ConstBuffer>{a, b}, mine);
          group.broadcast(b, 0);
        },
        ": the input of tensor 1 and the output of tensor 2 overlap in a group of 2 tensors");
    refused([&](Group& group) { group.broadcast(b, 2); }, ": root 2 is not a rank of 0 to 1");
    comm.barrier();  // all ranks have refused all groups, so the communicator stays usable
  });
}

}  // namespace
}  // namespace collectives::testing
