// Tests of calls that differ although their hashes are equal. Messages show no difference then. The next difference
// must be reported, and the error must not name a call that is equal on all ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/signature.hpp"
#include "support/errors.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

constexpr std::size_t kHiddenCount = 77;  // Calls with this count have equal hashes.

/// Gives all calls of kHiddenCount elements one hash while it exists. Other hashes depend on collective, count and
/// root.
struct EqualHashes {
  EqualHashes() {
    replace_hash_for_tests([](const Signature& s) noexcept {
      if (s.count == kHiddenCount) return std::uint64_t{0x123456789abcdef1};
      const std::uint64_t words[] = {static_cast<std::uint64_t>(s.collective), s.count,
                                     static_cast<std::uint64_t>(s.root), s.split ? 1u : 0u};
      return hash_bytes(words, sizeof words);
    });
  }
  ~EqualHashes() { replace_hash_for_tests(nullptr); }
};

void broadcast(Communicator& comm, std::size_t count, Rank root) {
  std::vector<float> data(count);
  comm.broadcast(data, root);
}

/// Makes a call that differs with equal hashes, then `between` equal calls, then a call that differs with other hashes.
/// Returns the text of the mismatch. Stores the smallest number of equal calls that a rank has made in `equal_calls`.
std::string mismatch_after(const std::vector<int>& hosts, int between, int& equal_calls) {
  std::mutex mutex;
  std::set<std::string> texts;
  equal_calls = between;
  run_hosts(hosts,
            [&](Communicator& comm) {
              int made = 0;
              const Error error = error_of([&] {
                comm.barrier();
                broadcast(comm, kHiddenCount, comm.rank());
                for (; made < between; ++made) comm.barrier();
                broadcast(comm, 10, comm.rank());
                for (int call = 0; call < 1000; ++call) comm.barrier();
              });
              EXPECT_EQ(error.code(), Errc::mismatch);
              const std::lock_guard lock(mutex);
              texts.insert(error.what());
              equal_calls = std::min(equal_calls, made);
            },
            {.timeout = std::chrono::seconds(20)});
  EXPECT_EQ(texts.size(), 1u);
  return texts.empty() ? "" : *texts.begin();
}

const std::string kHidden = "broadcast #2: rank 0 passed 77 x f32 root 0, rank";

TEST(EqualHashes, HideADifferenceUntilTheNextOne) {
  const EqualHashes equal;
  int equal_calls = 0;
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 0, 0}}) {
    // The records still hold the hidden difference, which is the first one.
    EXPECT_SAYS(mismatch_after(hosts, 20, equal_calls), kHidden);
    EXPECT_GE(equal_calls, 19) << "a rank may get the error in its last equal call";
    // They do not hold it any more. The call that is named differs, too.
    EXPECT_SAYS(mismatch_after(hosts, 100, equal_calls), "broadcast #103: rank 0 passed 10 x f32 root 0, rank");
    EXPECT_GE(equal_calls, 99);
  }
}

TEST(EqualHashes, ShowADifferenceByAMessageOfAnEarlierCall) {
  // Each root sends a message that the other host does not expect.
  const EqualHashes equal;
  int equal_calls = 0;
  EXPECT_SAYS(mismatch_after({0, 1}, 100, equal_calls), kHidden);
}

}  // namespace
}  // namespace collectives::testing
