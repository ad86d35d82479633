// The program of one rank of a trial. It joins the other ranks, and makes calls of one phase until one fails. It writes
// the time and the text of its error into memory that it shares with the driver.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "collectives/collectives.hpp"
#include "fault/kill_trial.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;

template <std::size_t N>
void copy(char (&to)[N], const std::string& from) {
  std::strncpy(to, from.c_str(), N - 1);
}

class RankOfTrial {
 public:
  RankOfTrial(const KillTrial& trial, Rank rank, RankState& state)
      : trial_(trial), rank_(rank), state_(state), common_(trial.seed * 1'000'003 + trial.index) {}

  void run() {
    const auto bootstrap = bootstrap_from_environment(std::chrono::seconds(kRendezvousSeconds));
    state_.stage = RankState::joined;
    std::optional<Communicator> comm;
    call("construction", [&] { comm.emplace(*bootstrap); });
    state_.stage = RankState::constructed;
    try {
      for (;;) act(*bootstrap, *comm);
    } catch (const Error&) {
      leave();
    }
  }
  /// Stores the first error of the rank.
  void store(int code, Rank peer, const std::string& operation, const std::string& text) {
    if (state_.failed != 0) return;
    state_.code = code;
    state_.peer = peer;
    copy(state_.operation, operation);
    copy(state_.text, text);
    state_.failed = Sleeper::now();
  }
  void leave() const {
    switch (trial_.leaving[static_cast<std::size_t>(rank_)]) {
      case Leaving::at_once: return;
      case Leaving::without_destructors: ::_exit(0);
      case Leaving::late: std::this_thread::sleep_for(300ms);
    }
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(common_() % n); }

  /// Makes one operation of the phase, unless the trial kills this rank before it.
  ///
  /// `stride`, `first`: rank r of the communicator is rank first + r * stride of the trial.
  template <class Make>
  void call(const char* operation, Make&& make, Rank first = 0, Rank stride = 1) {
    const bool dies =
        trial_.operation >= 0 && trial_.victims.front() == rank_ && state_.stage == RankState::constructed;
    if (dies && state_.operations == trial_.operation) {
      state_.killed = Sleeper::now();
      ::raise(SIGKILL);
    }
    if (state_.stage == RankState::constructed) ++state_.operations;
    state_.entered = Sleeper::now();
    try {
      make();
    } catch (const Error& error) {
      const Rank peer = error.peer() == kNoRank ? kNoRank : first + error.peer() * stride;
      store(static_cast<int>(error.code()), peer, operation, error.what());
      throw;
    }
  }

  void act(Bootstrap& bootstrap, Communicator& comm) {
    switch (trial_.phase) {
      case KillPhase::start: return call("barrier", [&] { comm.barrier(); });
      case KillPhase::calls: return collective(comm);
      case KillPhase::groups: return group(comm);
      case KillPhase::top_k: return top_k(comm);
      case KillPhase::split: return split(comm);
      case KillPhase::rebuilding: return rebuild(bootstrap);
      case KillPhase::destruction: return destroy(comm);
    }
  }

  /// Makes a random collective, with a random backend, blocking or asynchronous.
  void collective(Communicator& comm) {
    constexpr const char* kBackends[] = {"auto", "auto", "hierarchical", "ring", "reduce_to_one"};
    constexpr std::size_t kMost[] = {10, 1000, 30'000, 300'000};
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t part = below(kMost[below(std::size(kMost))]), whole = part * ranks;
    const Rank root = static_cast<Rank>(below(ranks));
    const Options options{.backend = kBackends[below(std::size(kBackends))]};
    a_.resize(whole);
    b_.resize(whole);
    const std::span<float> mine(b_.data(), part);
    const std::size_t which = below(7);
    const auto wait = [&](Work work) { work.wait(); };
    call("call", [&] {
      switch (which) {
        case 0: return comm.all_reduce(a_, b_, ReduceOp::sum, options);
        case 1: return comm.broadcast(a_, root, options);
        case 2: return comm.reduce(a_, b_, ReduceOp::max, root, options);
        case 3: return comm.all_gather(mine, a_, options);
        case 4: return comm.reduce_scatter(a_, mine, ReduceOp::sum, options);
        case 5: return comm.barrier(options);
        default: return wait(comm.all_reduce_async(a_, b_, ReduceOp::average, options));
      }
    });
  }

  void group(Communicator& comm) {
    a_.resize(6 * 2000);
    b_.resize(a_.size());
    Group group = comm.group();
    for (std::size_t i = 0, tensors = 1 + below(6); i < tensors; ++i) {
      const std::size_t count = below(2000);
      group.all_reduce(std::span(a_.data() + i * 2000, count), std::span(b_.data() + i * 2000, count));
    }
    const bool blocking = below(2) == 0;
    call("group", [&] { blocking ? group.run() : group.run_async().wait(); });
  }

  void top_k(Communicator& comm) {
    constexpr const char* kNames[] = {"first", "second", "third"};
    const std::size_t tensor = below(std::size(kNames));
    a_.assign(5000 * (tensor + 1), 1.f);
    b_.resize(a_.size());
    call("top-k", [&] {
      comm.all_reduce(a_, b_, ReduceOp::average, {.name = kNames[tensor], .compressor = &top_k_, .force = true});
    });
  }

  void split(Communicator& comm) {
    const bool apart = below(2) == 0;
    std::optional<Communicator> part;
    call("split", [&] { part = comm.split(apart ? comm.rank() % 2 : 0); });
    call(
        "barrier of a part", [&] { part->barrier(); }, apart ? comm.rank() % 2 : 0, apart ? 2 : 1);
  }

  void rebuild(Bootstrap& bootstrap) {
    std::optional<Communicator> another;
    call("rebuilding", [&] { another.emplace(bootstrap); });
    call("barrier", [&] { another->barrier(); });
    if (below(3) == 0) call("destruction", [&] { another.reset(); });
  }

  /// Destroys communicators whose operations have not ended.
  void destroy(Communicator& comm) {
    a_.resize(below(2) == 0 ? 100 : 100'000);
    b_.resize(a_.size());
    std::optional<Communicator> part;
    call("split", [&] { part = comm.split(0); });
    std::optional<Work> work;
    call("call", [&] { work = part->all_reduce_async(a_, b_); });
    const bool waits = below(2) == 0;
    if (waits) call("wait", [&] { work->wait(); });
    call("destruction", [&] {
      part.reset();
      work.reset();
    });
    call("barrier", [&] { comm.barrier(); });
  }

  const KillTrial& trial_;
  const Rank rank_;
  RankState& state_;
  std::mt19937_64 common_;  // equal on all ranks
  std::vector<float> a_, b_;
  TopK top_k_{{.density = 0.02}};
};

}  // namespace

void run_rank(const KillTrial& trial, Rank rank, RankState& state) {
  RankOfTrial here(trial, rank, state);
  try {
    state.entered = Sleeper::now();
    here.run();
  } catch (const Error& error) {  // of the rendezvous or the construction
    here.store(static_cast<int>(error.code()), error.peer(), "start", error.what());
    here.leave();
  } catch (const std::exception& error) {
    here.store(99, kNoRank, "", error.what());
  }
  std::fflush(nullptr);
  ::_exit(0);
}

}  // namespace collectives::testing
