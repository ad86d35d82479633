// Tests of the arrival table, which tells a rank the ranks that have entered a call, on its own host and on others.
// They check the error texts that name the missing ranks.
#include "monitoring/arrival_table.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/coarse_clock.hpp"
#include "collectives/topology.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr ArenaShape shape_of(int ranks) {
  return {.ranks = ranks, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};
}

Signature signature_with(std::uint64_t count) { return {.count = count}; }

/// The tables of ranks that share a host. Ranks with numbers from `ranks` on are on other hosts.
class Host {
 public:
  explicit Host(int ranks, int ranks_elsewhere = 0) {
    const auto topology = Topology::regular(ranks + ranks_elsewhere, ranks);
    arenas_.push_back(Arena::create(shape_of(ranks)));
    for (int rank = 1; rank < ranks; ++rank)
      arenas_.push_back(Arena::join(arenas_[0]->handle(), shape_of(ranks), rank));
    for (int rank = 0; rank < ranks; ++rank) {
      views_.push_back(std::make_unique<RankView>(topology, rank));
      tables_.push_back(std::make_unique<ArrivalTable>(*views_.back(), *arenas_[static_cast<std::size_t>(rank)]));
      tables_.back()->publish_heartbeat(coarse_now());
    }
  }
  ArrivalTable& operator[](int rank) { return *tables_[static_cast<std::size_t>(rank)]; }
  void arrive(int rank, std::uint64_t sequence, std::uint64_t count = 1) {
    (*this)[rank].arrive(sequence, pack(signature_with(count)));
  }

 private:
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<RankView>> views_;
  std::vector<std::unique_ptr<ArrivalTable>> tables_;
};

TEST(CallText, NamesCollectiveNumberAndTensor) {
  EXPECT_EQ(call_text({.sequence = 17, .signature = {}}), "all_reduce #17");
  EXPECT_EQ(call_text({.sequence = 17, .signature = {}, .name = "fc1"}), "all_reduce #17 (fc1)");
  EXPECT_EQ(call_text({.sequence = 17, .signature = {}, .name = "fc1", .operation = "split"}), "split");
}

TEST(ArrivalTable, ReturnsTheSignatureOfARankInTheCall) {
  Host host(2);
  EXPECT_FALSE(host[0].signature_of(1, 1));
  EXPECT_FALSE(host[0].has_arrived(1, 1));
  host.arrive(1, 1, 4096);
  EXPECT_EQ(host[0].signature_of(1, 1), signature_with(4096));
  EXPECT_TRUE(host[0].has_arrived(1, 1));
  EXPECT_FALSE(host[0].signature_of(1, 2));
  EXPECT_FALSE(host[0].has_arrived(1, 2));
}

TEST(ArrivalTable, KeepsAllWordsOfASignatureWithACodec) {
  Host host(2);
  const Signature signature{.count = 3, .wire = WireName("a name with 16+ letters"), .force = true};
  host[1].arrive(1, pack(signature));
  EXPECT_EQ(host[0].signature_of(1, 1), signature);
}

TEST(ArrivalTable, KnowsThatARankHasPassedACallAfterItsRecordWasReplaced) {
  Host host(2);
  for (std::uint64_t sequence = 1; sequence <= kRecords + 1; ++sequence) host.arrive(1, sequence);
  EXPECT_FALSE(host[0].signature_of(1, 1));
  EXPECT_TRUE(host[0].has_arrived(1, 1));
  EXPECT_TRUE(host[0].signature_of(1, 2));
  EXPECT_EQ(host[1].arrived(), kRecords + 1);
}

TEST(ArrivalTable, KeepsTheNewestRecordOfARankOfAnotherHost) {
  Host host(1, 2);
  EXPECT_FALSE(host[0].has_arrived(1, 5));
  host[0].add_records(5, {{1, signature_with(10)}});
  EXPECT_EQ(host[0].signature_of(1, 5), signature_with(10));
  EXPECT_TRUE(host[0].has_arrived(1, 4));
  EXPECT_FALSE(host[0].has_arrived(2, 5));
  host[0].add_records(4, {{1, signature_with(11)}, {2, signature_with(12)}});
  EXPECT_EQ(host[0].signature_of(1, 5), signature_with(10));
  EXPECT_FALSE(host[0].signature_of(1, 4));
  EXPECT_EQ(host[0].signature_of(2, 4), signature_with(12));
}

TEST(ArrivalTable, IgnoresRecordsOfRanksThatDoNotExist) {
  Host host(1, 1);
  host[0].add_records(5, {{2, {}}, {-1, {}}, {1'000'000'000, {}}});
  EXPECT_FALSE(host[0].has_arrived(1, 5));
}

TEST(ArrivalTable, ReturnsTheRecordsOfACall) {
  Host host(3, 2);
  host.arrive(0, 1, 7);
  host.arrive(2, 1, 9);
  host[0].add_records(1, {{4, signature_with(11)}});
  const auto of_host = host[0].records_of_host(1);
  ASSERT_EQ(of_host.size(), 2u);
  EXPECT_EQ(of_host[0].rank, 0);
  EXPECT_EQ(of_host[1].rank, 2);
  EXPECT_EQ(of_host[1].signature, signature_with(9));
  const auto of_all = host[0].records({.sequence = 1, .signature = signature_with(8)});
  ASSERT_EQ(of_all.size(), 3u);
  EXPECT_EQ(of_all[0].signature, signature_with(8));
  EXPECT_EQ(of_all[1].rank, 2);
  EXPECT_EQ(of_all[2].rank, 4);
}

TEST(ArrivalTable, NamesTheMissingRanks) {
  Host host(3, 2);
  EXPECT_EQ(host[0].first_missing(1).first, 1);
  EXPECT_EQ(host[0].first_missing(1).ranks, 4);
  EXPECT_EQ(host[0].awaited_rank(1), 1);
  EXPECT_EQ(host[0].missing_text(1), "ranks 1-4 have not arrived");
  host.arrive(1, 1);
  host.arrive(2, 1);
  host[0].add_records(1, {{3, {}}});
  EXPECT_EQ(host[0].first_missing(1).first, 4);
  EXPECT_EQ(host[0].first_missing(1).ranks, 1);
  EXPECT_EQ(host[0].awaited_rank(1), 4);
  EXPECT_EQ(host[0].missing_text(1), "rank 4 has not arrived");
  host[0].add_records(2, {{4, {}}});
  EXPECT_EQ(host[0].first_missing(1).first, kNoRank);
  EXPECT_EQ(host[0].awaited_rank(1), kNoRank);
  EXPECT_EQ(host[0].missing_text(1), "all ranks have arrived");
}

TEST(ArrivalTable, NamesRanksWithoutAHeartbeat) {
  Host host(3);
  host.arrive(1, 1);
  host[2].publish_heartbeat(coarse_now() - 1s);
  EXPECT_EQ(host[0].missing_text(1), "rank 2 has not arrived");
  host[1].publish_heartbeat(coarse_now() - 2s);
  EXPECT_EQ(host[0].missing_text(1), "rank 2 has not arrived; no sign of life from ranks 1-2");
  EXPECT_EQ(host[0].awaited_rank(1), 1);
  host.arrive(2, 1);
  host[1].complete(1);
  EXPECT_EQ(host[0].missing_text(1), "all ranks have arrived, but rank 2 has stopped there");
  EXPECT_EQ(host[1].completed(), 1u);
}

TEST(ArrivalTable, NamesRanksThatWaitForTheirGpu) {
  Host host(3);
  host.arrive(1, 1);
  host.arrive(2, 1);
  host[2].set_waiting_for_gpu(true);
  EXPECT_EQ(host[0].missing_text(1), "all ranks have arrived, but the GPU of rank 2 has not done its part");
  EXPECT_EQ(host[0].awaited_rank(1), 2);
  host[1].set_waiting_for_gpu(true);
  EXPECT_EQ(host[0].missing_text(1), "all ranks have arrived, but the GPUs of ranks 1-2 have not done their part");
  host[1].set_waiting_for_gpu(false);
  host[2].complete(1);
  EXPECT_EQ(host[0].missing_text(1), "all ranks have arrived");
}

TEST(ArrivalTable, TellsTheNewestCallOfEachRank) {
  Host host(4);
  host[0].arrive(1, pack({.collective = Collective::all_reduce}));
  host[0].complete(1);
  for (const int rank : {1, 2}) host[rank].arrive(2, pack({.collective = Collective::barrier}));
  EXPECT_EQ(host[3].progress_text(), "rank 0 after all_reduce #1; ranks 1-2 in barrier #2; rank 3 in no call yet");
}

}  // namespace
}  // namespace collectives::testing
