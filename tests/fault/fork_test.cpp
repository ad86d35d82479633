// Tests of child processes made by fork(). Objects of the library that a child inherits refuse its calls or do nothing;
// objects that it creates work. The parent and the other ranks must be undisturbed. Ranks are threads of one process or
// processes, with and without a progress thread, over shared memory and over TCP.
//
// Under a sanitizer the tests fork only while no other thread of the process runs. fork() does not take the locks of the
// sanitizers of GCC 12, such as those of their allocator (google/sanitizers#1400). If another thread held one, the child
// would wait for it without end.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/child.hpp"
#include "support/line_bootstrap.hpp"
#include "support/ranks.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

struct Setting {
  bool processes;
  bool progress_thread;
  const char* transport;
  friend void PrintTo(const Setting& setting, std::ostream* out) {
    *out << (setting.processes ? "processes" : "threads") << (setting.progress_thread ? "_with" : "_without")
         << "_progress_thread_" << setting.transport;
  }
};

/// Throws unless `right` is true. Children use it, because an assertion of GoogleTest in a child would not fail the
/// test.
void expect(bool right, const std::string& what) {
  if (!right) throw std::runtime_error(what);
}

/// Expects that `call` throws the error for a child of process `parent` that uses an inherited communicator.
template <class F>
void expect_refused(pid_t parent, const std::string& operation, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string what = error.what();
    expect(error.code() == Errc::invalid_argument &&
               what == "rank " + std::to_string(error.rank()) + ": " + operation +
                           ": this communicator belongs to process " + std::to_string(parent) +
                           ", from which this one was forked: a child makes its own",
           operation + ": " + what);
    return;
  }
  throw std::runtime_error(operation + " is not refused");
}

/// Runs `work` in a child, and expects that it succeeds.
template <class F>
void in_child(F&& work) {
  Child child([&](Line&) {
    work();
    return 0;
  });
  expect(child.wait() == 0, "the child has failed");
}

void expect_sums(Communicator& comm, std::size_t count = 1000) {
  std::vector<float> data(count, 1.F);
  comm.all_reduce(data);
  expect(data == std::vector<float>(count, static_cast<float>(comm.size())), "another sum");
}

class Fork : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (!kSanitized) return;
    if (!GetParam().processes || GetParam().progress_thread) GTEST_SKIP() << "forks while another thread is busy";
    ::setenv("COLLECTIVES_DATAGRAMS", "off", 1);  // datagrams are off, because a thread of the library retransmits them
  }
  /// Runs `f(Communicator&)` on two ranks.
  template <class F>
  static void run(F&& f) {
    const CommunicatorOptions options{.timeout = 60s,
                                      .progress_thread = GetParam().progress_thread,
                                      .tuning = Tuning{},
                                      .transport = GetParam().transport};
    if (!GetParam().processes) return run_communicators(2, f, options);
    const auto rank = [&](Rank self, Line& line) {
      LineBootstrap bootstrap(self, line);
      Communicator comm(bootstrap, options);
      f(comm);
    };
    Child other([&](Line& line) {
      rank(1, line);
      return 0;
    });
    rank(0, other.line());
    expect(other.wait() == 0, "rank 1 has failed");
  }
};

TEST_P(Fork, ChildUsesAnInheritedCommunicator) {
  run([](Communicator& comm) {
    std::vector<int> data(10, 1), twice(20), half(5);
    const std::vector<std::size_t> counts{4, 6};
    Group group = comm.group();
    group.all_reduce(data, data);
    expect_sums(comm);
    const pid_t parent = ::getpid();
    in_child([&] {
      const auto refused = [&](const std::string& operation, auto&& call) { expect_refused(parent, operation, call); };
      refused("all_reduce", [&] { comm.all_reduce(data); });
      refused("all_reduce", [&] { comm.all_reduce_async(data, data).wait(); });
      refused("reduce_scatter", [&] { comm.reduce_scatter(data, half); });
      refused("reduce_scatter", [&] { comm.reduce_scatter_async(data, half).wait(); });
      refused("reduce_scatter", [&] { comm.reduce_scatter_v(data, half, counts); });
      refused("all_gather", [&] { comm.all_gather(data, twice); });
      refused("all_gather", [&] { comm.all_gather_async(data, twice).wait(); });
      refused("all_gather", [&] { comm.all_gather_v(data, twice, counts); });
      refused("broadcast", [&] { comm.broadcast(data, 0); });
      refused("broadcast", [&] { comm.broadcast_async(data, 0).wait(); });
      refused("reduce", [&] { comm.reduce(data, data, ReduceOp::sum, 0); });
      refused("reduce", [&] { comm.reduce_async(data, data, ReduceOp::sum, 0).wait(); });
      refused("barrier", [&] { comm.barrier(); });
      refused("barrier", [&] { comm.barrier_async().wait(); });
      refused("all_reduce", [&] { group.all_reduce(data, data); });
      refused("group", [&] { group.run(); });
      refused("group", [&] { comm.group().run(); });
      refused("split", [&] { comm.split(0); });
      refused("progress", [&] { comm.progress(); });
      comm.abort("a child may not");
      // Properties that need no other rank still work.
      expect(comm.size() == 2 && comm.bytes_sent() > 0 && comm.coding().raw_bytes == 0, "other properties");
      expect(comm.counters()[Collective::all_reduce].calls == 1 && comm.recent_operations().size() == 1, "no records");
      expect(!comm.explain(Collective::all_reduce, 10, DataType::f32).empty(), "no explanation");
      const SharedArray<int> memory = comm.allocate<int>(10);
      expect(memory[9] == 0, "no memory");
    });
    expect_sums(comm);
    group.run();
    expect(data == std::vector<int>(10, 2), "another sum of the group");
  });
}

TEST_P(Fork, ChildDestroysWhatItInherited) {
  run([](Communicator& comm) {
    auto part = comm.split(0);
    for (int lap = 0; lap < 2; ++lap) {
      expect_sums(comm);
      in_child([&] {
        { const Communicator gone = std::move(comm); }
        part = Communicator(*bootstrap_threads(1)[0], {.progress_thread = false, .tuning = Tuning{}});
        expect_sums(*part);
      });
      expect_sums(comm);
      expect_sums(*part, 100'000);
    }
  });
}

TEST_P(Fork, ChildIsRefusedAnUnfinishedOperation) {
  run([](Communicator& comm) {
    auto signal = comm.split(0);
    std::vector<float> data(100'000, 1.F);
    if (comm.rank() == 0) {
      Work work = comm.all_reduce_async(data, data), dropped = comm.barrier_async();
      Group group = comm.group();
      std::vector<int> a(10, 1), b(20, 1);
      group.all_reduce(a, a);
      group.all_reduce(b, b);
      Work whole = group.run_async();
      const pid_t parent = ::getpid();
      in_child([&] {
        expect_refused(parent, "all_reduce", [&] { work.test(); });
        expect_refused(parent, "all_reduce", [&] { work.wait(); });
        expect_refused(parent, "all_reduce", [&] { work.wait_for(1ms); });
        expect_refused(parent, "all_reduce", [&] { whole.wait(); });
        { const Work gone = std::move(dropped); }
        { const Communicator gone = std::move(comm); }
        expect_refused(parent, "all_reduce", [&] { work.wait(); });
      });
      signal->barrier();
      work.wait();
      dropped.wait();
      whole.wait();
      expect(a == std::vector<int>(10, 2) && b == std::vector<int>(20, 2), "another sum of the group");
    } else {
      signal->barrier();
      comm.all_reduce(data);
      comm.barrier();
      std::vector<int> a(10, 1), b(20, 1);
      Group group = comm.group();
      group.all_reduce(a, a);
      group.all_reduce(b, b);
      group.run();
    }
    expect(data == std::vector<float>(data.size(), 2.F), "another sum");
    expect_sums(comm);
  });
}

TEST_P(Fork, ChildIsRefusedAFinishedOperation) {
  run([](Communicator& comm) {
    std::vector<int> data(10, 1);
    Work work = comm.all_reduce_async(data, data);
    comm.barrier();
    const pid_t parent = ::getpid();
    in_child([&] { expect_refused(parent, "all_reduce", [&] { work.wait(); }); });
    work.wait();
    expect(data == std::vector<int>(10, 2), "another sum");
  });
}

/// A wait also progresses the thread's pending operations in other communicators. A child has none of those that it
/// inherited.
TEST_P(Fork, ChildMakesACommunicatorDuringAnOperationOfItsParent) {
  run([](Communicator& comm) {
    auto signal = comm.split(0);
    expect_sums(comm);  // no construction is under way when the other rank forks
    std::vector<float> data(100'000, 1.F);
    if (comm.rank() == 1) signal->barrier();
    Work work = comm.all_reduce_async(data, data);
    in_child([] {
      const CommunicatorOptions options{.timeout = 60s, .progress_thread = false, .tuning = Tuning{}};
      Child partner([&](Line& line) {
        LineBootstrap bootstrap(1, line);
        Communicator own(bootstrap, options);
        line.take();
        expect_sums(own);
        own.barrier();
        return 0;
      });
      LineBootstrap bootstrap(0, partner.line());
      Communicator own(bootstrap, options);
      std::vector<float> ones(1000, 1.F);
      Work sum = own.all_reduce_async(ones, ones);
      expect(!sum.wait_for(20ms), "finished without the partner");
      partner.line().put(1);
      own.barrier();
      expect(sum.test() && ones == std::vector<float>(1000, 2.F), "another sum of the children");
      expect(partner.wait() == 0, "the partner has failed");
    });
    if (comm.rank() == 0) signal->barrier();
    work.wait();
    expect(data == std::vector<float>(data.size(), 2.F), "another sum");
    expect_sums(comm);
  });
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const bool processes : {false, true})
    for (const bool progress_thread : {false, true})
      for (const char* transport : {"shared_memory", "tcp"}) all.push_back({processes, progress_thread, transport});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ranks, Fork, ::testing::ValuesIn(settings()),
                         [](const auto& one) { return ::testing::PrintToString(one.param); });

}  // namespace
}  // namespace collectives::testing
