// Tests of groups with sends and receives: they start together, beside collectives, and match calls outside of groups.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

const std::vector<std::vector<int>> kMessageWorlds{{0}, {0, 0, 0}, {0, 1}, {0, 0, 1, 1}};

/// Value of element i of the message from one rank to another.
int value_of(Rank from, Rank to, std::size_t i) { return 1000 * from + 100 * to + static_cast<int>(i % 97); }

/// A message from this rank to each rank, and one from each rank to this one.
class Exchange {
 public:
  Exchange(const Communicator& comm, std::size_t count)
      : self_(comm.rank()),
        sent_(static_cast<std::size_t>(comm.size()), std::vector<int>(count)),
        received_(static_cast<std::size_t>(comm.size()), std::vector<int>(count, -1)) {
    for (Rank to = 0; to < comm.size(); ++to)
      for (std::size_t i = 0; i < count; ++i) of(sent_, to)[i] = value_of(self_, to, i);
  }
  void add_to(Group& group) {
    for (Rank rank = 0; rank < static_cast<Rank>(sent_.size()); ++rank) {
      group.send(of(sent_, rank), rank, 3);
      group.recv(of(received_, rank), rank, 3);
    }
  }
  void check() const {
    for (Rank from = 0; from < static_cast<Rank>(received_.size()); ++from)
      for (std::size_t i = 0; i < received_[0].size(); ++i)
        ASSERT_EQ(received_[static_cast<std::size_t>(from)][i], value_of(from, self_, i)) << "from rank " << from;
  }

 private:
  static std::vector<int>& of(std::vector<std::vector<int>>& messages, Rank rank) {
    return messages[static_cast<std::size_t>(rank)];
  }
  Rank self_;
  std::vector<std::vector<int>> sent_, received_;
};

TEST(MessagesOfAGroup, StartTogetherBesideCollectives) {
  for (const auto& hosts : kMessageWorlds)
    for (const std::size_t count : {std::size_t{2}, std::size_t{70'000}})  // long messages need all to be under way
      run_hosts(hosts,
                [&](Communicator& comm) {
                  Group group = comm.group();
                  for (int round = 0; round < 2; ++round) {
                    Exchange exchange(comm, count);
                    std::vector<int> sum(5, comm.rank() + round);
                    exchange.add_to(group);
                    group.all_reduce(sum, sum);
                    group.run();
                    exchange.check();
                    EXPECT_EQ(sum, std::vector<int>(5, comm.size() * (comm.size() - 1) / 2 + round * comm.size()));
                  }
                },
                {.timeout = 20s});
}

TEST(MessagesOfAGroup, MatchCallsOutsideOfGroups) {
  run_communicators(2,
                    [](Communicator& comm) {
                      int mine = 5, theirs = 0;
                      const Rank other = 1 - comm.rank();
                      if (comm.rank() == 0) {
                        EXPECT_EQ(comm.sendrecv(std::span(&mine, 1), 1, std::span(&theirs, 1), 1, 4), 1);
                      } else {
                        Group group = comm.group();
                        group.recv(std::span(&theirs, 1), any_source, 4);
                        group.send(std::span(&mine, 1), other, 4);
                        Work work = group.run_async();
                        work.wait();
                        EXPECT_EQ(work.source(), 0);
                      }
                      EXPECT_EQ(theirs, 5);
                    },
                    {.timeout = 20s});
}

TEST(MessagesOfAGroup, AreRefusedWithBadArgumentsWhenTheyAreAdded) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(3);
    Group group = comm.group();
    const Error tag = error_of([&] { group.send(data, 0, -1); });
    EXPECT_EQ(tag.code(), Errc::invalid_argument);
    EXPECT_SAYS(tag.what(), "send: tag -1 is not in 0 to 1073741824");
    EXPECT_SAYS(error_of([&] { group.recv(data, 2); }).what(), "recv: rank 2 is not a rank of 0 to 1");
    group.run();  // is empty
    comm.barrier();
  });
}

TEST(MessagesOfAGroup, MustNotOverlap) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<int> data(8);
    const std::span<int> all(data);
    Group group = comm.group();
    group.recv(all.first(4), 0, 1);
    group.recv(all.subspan(3), 0, 2);
    const Error error = error_of([&] { group.run(); });
    EXPECT_EQ(error.code(), Errc::invalid_argument);
    EXPECT_SAYS(error.what(), "recv: the output of tensor 1 and the output of tensor 2 overlap");
    group.send(all, 1 - comm.rank(), 1);  // inputs may overlap
    group.send(all, 1 - comm.rank(), 2);
    std::vector<int> first(8), second(8);
    group.recv(first, 1 - comm.rank(), 1);
    group.recv(second, 1 - comm.rank(), 2);
    group.run();
  });
}

TEST(MessagesOfAGroup, ThatOverlapACollectiveRefuseItOnAllRanks) {
  run_communicators(2,
                    [](Communicator& comm) {
                      std::vector<int> data(8), other(8);
                      Group group = comm.group();
                      group.all_reduce(data, data);
                      if (comm.rank() == 0) group.recv(data, 1, 1);
                      const Error error = error_of([&] { group.run(); });
                      if (comm.rank() == 0) {
                        EXPECT_EQ(error.code(), Errc::invalid_argument);
                        EXPECT_SAYS(error.what(), "recv: the output of tensor 1 and the output of tensor 2 overlap");
                      } else {
                        EXPECT_EQ(error.code(), Errc::mismatch);
                        EXPECT_SAYS(error.what(), "rank 0 refused all_reduce #1: recv: the output of tensor 1");
                      }
                    },
                    {.timeout = 20s});
}

}  // namespace
}  // namespace collectives::testing
