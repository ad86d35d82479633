// Tests of the arrival table, which tells a rank the ranks that have entered a call, on its own host and on others.
// They check the error texts that name the missing ranks.
#include "monitoring/arrival_table.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/coarse_clock.hpp"
#include "collectives/topology.hpp"
#include "monitoring/call_difference.hpp"
#include "monitoring/message_wait.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

constexpr ArenaShape shape_of(int ranks) {
  return {.ranks = ranks, .inline_bytes = 64, .chunk_bytes = 64, .frame_bytes = 64};
}

Signature signature_with(std::uint64_t count) { return {.count = count}; }

/// Returns the record of a call after calls that are equal on all ranks.
CallRecord record_with(std::uint64_t sequence, std::uint64_t count) {
  const Signature signature = signature_with(count);
  return {.sequence = sequence, .hash = {0, hash_of(signature)}, .signature = signature};
}

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
  void wait(int rank, const MessageWait& wait) { arenas_[0]->block(rank).message_wait.value.store(wait.word()); }
  void arrive(int rank, std::uint64_t sequence, std::uint64_t count = 1) {
    const Signature signature = signature_with(count);
    (*this)[rank].arrive(sequence, {0, hash_of(signature)}, pack(signature));
  }
  /// Lets a rank enter calls 1 to `calls`. All but call `odd` have count 1.
  void arrive_up_to(int rank, std::uint64_t calls, std::uint64_t odd = 0) {
    RunningHash hash;
    for (std::uint64_t sequence = 1; sequence <= calls; ++sequence) {
      const Signature signature = signature_with(sequence == odd ? 2 : 1);
      hash.append(hash_of(signature));
      (*this)[rank].arrive(sequence, hash, pack(signature));
    }
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
  EXPECT_FALSE(host[0].record_of(1, 1));
  EXPECT_FALSE(host[0].has_arrived(1, 1));
  host.arrive(1, 1, 4096);
  ASSERT_TRUE(host[0].record_of(1, 1));
  EXPECT_EQ(host[0].record_of(1, 1)->signature, signature_with(4096));
  EXPECT_TRUE(host[0].has_arrived(1, 1));
  EXPECT_FALSE(host[0].record_of(1, 2));
  EXPECT_FALSE(host[0].has_arrived(1, 2));
}

TEST(ArrivalTable, KeepsAllWordsOfASignatureWithACodec) {
  Host host(2);
  const Signature signature{.count = 3, .wire = WireName("a name with 16+ letters"), .force = true};
  host[1].arrive(1, {}, pack(signature));
  EXPECT_EQ(host[0].record_of(1, 1)->signature, signature);
}

TEST(ArrivalTable, KnowsThatARankHasPassedACallAfterItsRecordWasReplaced) {
  Host host(2);
  for (std::uint64_t sequence = 1; sequence <= kRecords + 1; ++sequence) host.arrive(1, sequence);
  EXPECT_FALSE(host[0].record_of(1, 1));
  EXPECT_TRUE(host[0].has_arrived(1, 1));
  EXPECT_TRUE(host[0].record_of(1, 2));
  EXPECT_EQ(host[1].arrived(), kRecords + 1);
}

TEST(ArrivalTable, KeepsTheNewestRecordsOfARankOfAnotherHost) {
  Host host(1, 2);
  EXPECT_FALSE(host[0].has_arrived(1, 5));
  host[0].add_records({{1, record_with(5, 10)}});
  EXPECT_EQ(host[0].record_of(1, 5)->signature, signature_with(10));
  EXPECT_TRUE(host[0].has_arrived(1, 4));
  EXPECT_FALSE(host[0].has_arrived(2, 5));
  host[0].add_records({{1, record_with(4, 11)}, {1, record_with(5 + kRecords, 12)}, {1, record_with(5, 13)}});
  EXPECT_EQ(host[0].record_of(1, 4)->signature, signature_with(11));
  EXPECT_EQ(host[0].record_of(1, 5 + kRecords)->signature, signature_with(12));
  EXPECT_FALSE(host[0].record_of(1, 5)) << "an older record does not replace a newer one";
  EXPECT_EQ(host[0].newest_of(1), 5 + kRecords);
}

TEST(ArrivalTable, IgnoresRecordsOfRanksThatDoNotExistOrAreOnThisHost) {
  Host host(1, 1);
  host[0].add_records({{2, record_with(5, 1)}, {-1, {}}, {1'000'000'000, record_with(5, 1)}, {0, record_with(5, 1)}});
  host[0].add_records({{1, record_with(0, 1)}});
  EXPECT_FALSE(host[0].has_arrived(1, 1));
  EXPECT_FALSE(host[0].has_arrived(0, 1));
}

TEST(ArrivalTable, HasARecordOfTheLargestNumber) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  Host host(1, 1);
  host[0].add_records({{1, record_with(kLargest, 10)}});
  std::vector<Arrived> records;
  append_records(host[0], 1, kRecords, records);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].call.sequence, kLargest);
  EXPECT_FALSE(first_difference(host[0]));
}

TEST(ArrivalTable, ReturnsTheRecordsOfItsHost) {
  Host host(3, 2);
  host.arrive_up_to(0, 3);
  host.arrive_up_to(2, kRecords + 1);
  host.arrive(2, kRecords + 2, 9);
  host[1].add_records({{4, record_with(7, 11)}});
  const auto newest = host[1].records_of_host(1);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].rank, 0);
  EXPECT_EQ(newest[0].call.sequence, 3u);
  EXPECT_EQ(newest[1].rank, 2);
  EXPECT_EQ(newest[1].call.sequence, kRecords + 2);
  EXPECT_EQ(newest[1].call.signature, signature_with(9));
  EXPECT_EQ(host[1].records_of_host(kRecords).size(), 3 + kRecords);
  EXPECT_EQ(host[2].own_records(kRecords).front().call.sequence, 3u);
}

TEST(ArrivalTable, ReturnsTheDetailsOfACall) {
  Host host(2);
  std::string others;
  append_detail(others, Detail::op, "\"one\"", kOpBytes);
  append_lengths(others, std::vector<std::size_t>{3, 4});
  const std::string name(kNameBytes, 'n');
  host[1].publish_details(1, name, others);
  host.arrive(1, 1);
  const CallDetails expected{.name = name, .op = "\"one\"", .lengths = {3, 4}};
  EXPECT_EQ(host[0].record_of(1, 1)->details, expected);
  host.arrive(1, 1 + kRecords);
  EXPECT_EQ(host[0].record_of(1, 1 + kRecords)->details, CallDetails()) << "the details of an older call";
}

TEST(ArrivalTable, FindsTheFirstOfSeveralCallsThatDiffer) {
  Host host(2);
  host.arrive_up_to(0, 10);
  host.arrive_up_to(1, 8);
  EXPECT_FALSE(host[0].has_difference());
  EXPECT_FALSE(first_difference(host[0]));
  host.arrive_up_to(1, 8, 3);
  for (int rank : {0, 1}) {
    EXPECT_TRUE(host[rank].has_difference());
    const auto found = first_difference(host[rank]);
    ASSERT_TRUE(found);
    EXPECT_EQ(describe_mismatch(found->records).text, "all_reduce #3: rank 0 passed 1 x f32, rank 1 passed 2 x f32");
    EXPECT_FALSE(found->earlier);
    EXPECT_TRUE(found->complete);
  }
}

TEST(ArrivalTable, NamesACallBeforeItsOldestRecordIfTheDifferenceLiesFurtherBack) {
  for (const std::uint64_t back : {kRecords - 1, kRecords, kRecords + 1, std::size_t{10'000}}) {
    Host host(2);
    const std::uint64_t calls = back + 5;
    host.arrive_up_to(0, calls);
    host.arrive_up_to(1, calls, calls - back);
    ASSERT_TRUE(host[0].has_difference());
    const auto found = first_difference(host[0]);
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->complete);
    EXPECT_EQ(found->earlier, back >= kRecords) << back;
    EXPECT_EQ(found->records[0].call.sequence, back >= kRecords ? calls - kRecords + 1 : calls - back);
  }
}

TEST(ArrivalTable, WaitsForTheRecordsOfOtherHostsBeforeADifferenceIsComplete) {
  Host host(1, 1), other(2);
  host.arrive_up_to(0, 5);
  other.arrive_up_to(1, 5, 2);
  host[0].add_records({{1, *other[1].record_of(1, 5)}});
  EXPECT_TRUE(host[0].has_difference());
  EXPECT_FALSE(first_difference(host[0])->complete);
  host[0].add_records(other[1].own_records(kRecords));
  EXPECT_TRUE(first_difference(host[0])->complete);
  EXPECT_FALSE(first_difference(host[0])->earlier);
  EXPECT_EQ(first_difference(host[0])->records[0].call.sequence, 2u);
}

TEST(ArrivalTable, NamesTheMissingRanks) {
  Host host(3, 2);
  EXPECT_EQ(host[0].first_missing(1).first, 1);
  EXPECT_EQ(host[0].first_missing(1).ranks, 4);
  EXPECT_EQ(host[0].awaited_rank(1), 1);
  EXPECT_EQ(host[0].missing_text(1), "ranks 1-4 have not arrived");
  host.arrive(1, 1);
  host.arrive(2, 1);
  host[0].add_records({{3, record_with(1, 1)}});
  EXPECT_EQ(host[0].first_missing(1).first, 4);
  EXPECT_EQ(host[0].first_missing(1).ranks, 1);
  EXPECT_EQ(host[0].awaited_rank(1), 4);
  EXPECT_EQ(host[0].missing_text(1), "rank 4 has not arrived");
  host[0].add_records({{4, record_with(2, 1)}});
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

TEST(ArrivalTable, NamesTheMessagesForWhichMissingRanksWait) {
  using Kind = MessageWait::Kind;
  Host host(3);
  host.wait(1, {Kind::receive, 0, 3});
  EXPECT_EQ(host[0].missing_text(1), "ranks 1-2 have not arrived; rank 1 waits to receive from rank 0, tag 3");
  host.arrive(2, 1);
  host.wait(2, {Kind::send, 0, 4});
  host.wait(1, {Kind::receive, any_source, 5});
  EXPECT_EQ(host[0].missing_text(1), "rank 1 has not arrived; rank 1 waits to receive from any rank, tag 5");
  host.wait(1, {Kind::send, 2, 6});
  EXPECT_EQ(host[0].missing_text(1), "rank 1 has not arrived; rank 1 waits to send to rank 2, tag 6");
  host.wait(1, {});
  EXPECT_EQ(host[0].missing_text(1), "rank 1 has not arrived");
}

TEST(ArrivalTable, NamesAtMostFourMessagesForWhichMissingRanksWait) {
  Host host(7);
  for (int rank = 1; rank < 7; ++rank) host.wait(rank, {MessageWait::Kind::receive, 0, rank});
  const std::string text = host[0].missing_text(1);
  EXPECT_NE(text.find("rank 4 waits to receive from rank 0, tag 4"), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 5 waits"), std::string::npos) << text;
}

TEST(ArrivalTable, NamesRanksOfOtherHostsThatGiveNoSignOfLife) {
  Host host(2, 2);
  host.arrive(1, 1);
  EXPECT_EQ(host[0].missing_text(1, {3}), "ranks 2-3 have not arrived; no sign of life from rank 3");
  EXPECT_EQ(host[0].awaited_rank(1, {3}), 3);
  host[0].add_records({{2, record_with(1, 1)}});
  EXPECT_EQ(host[0].missing_text(1, {3}), "rank 3 has not arrived");
  EXPECT_EQ(host[0].awaited_rank(1, {2}), 3);
  host[0].add_records({{3, record_with(1, 1)}});
  EXPECT_EQ(host[0].missing_text(1, {2, 3}), "all ranks have arrived; no sign of life from ranks 2-3");
  EXPECT_EQ(host[0].awaited_rank(1, {2, 3}), 2);
  host[1].publish_heartbeat(coarse_now() - 1s);
  EXPECT_EQ(host[0].missing_text(1, {3}),
            "all ranks have arrived, but rank 1 has stopped there; no sign of life from rank 3");
  EXPECT_EQ(host[0].awaited_rank(1, {3}), 1);
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
  host[0].arrive(1, {}, pack({.collective = Collective::all_reduce}));
  host[0].complete(1);
  for (const int rank : {1, 2}) host[rank].arrive(2, {}, pack({.collective = Collective::barrier}));
  EXPECT_EQ(host[3].progress_text(), "rank 0 after all_reduce #1; ranks 1-2 in barrier #2; rank 3 in no call yet");
}

}  // namespace
}  // namespace collectives::testing
