// Bootstrap of ranks that are threads of one process.
//
// A bootstrap lets ranks exchange bytes. The threads share one object, the Rendezvous. In an exchange, each rank writes
// its bytes to its own slot. The last rank that arrives ends the exchange and wakes the other ranks. An exchange fails
// if the deadline of a waiting rank passes, or if a rank destroys its bootstrap before it arrives. All ranks then throw
// the same error, in this exchange and in all later ones.
#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/reported_wait.hpp"
#include "bootstrap/missing.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

class Rendezvous {
 public:
  explicit Rendezvous(int size) : left_(static_cast<std::size_t>(size)) { open_round(left_.size()); }

  int size() const { return static_cast<int>(left_.size()); }

  std::vector<std::string> exchange(Rank rank, std::string_view mine, Deadline deadline) {
    std::shared_ptr<const std::vector<std::string>> contributions;
    {
      std::unique_lock lock(mutex_);
      if (end_) throw Error(end_->code, end_->reason, rank, end_->culprit);
      const auto me = static_cast<std::size_t>(rank);
      slots_[me] = mine;
      here_[me] = true;
      const std::uint64_t round = round_;
      ReportedWait waiting("come to the rendezvous of threads", rank, deadline, [this] {
        return ReportedWait::Awaited{missing_ranks(here_), {}, {}};
      });
      if (++arrived_ == slots_.size()) {
        last_round_ = std::make_shared<const std::vector<std::string>>(std::move(slots_));
        open_round(left_.size());
        ++round_;
        changed_.notify_all();
      }
      while (round_ == round) {
        look_for_the_gone();
        if (!end_ && waiting.is_over()) finish({Errc::timeout, waiting.text(), missing_ranks(here_).front()});
        if (end_) throw Error(end_->code, end_->reason, rank, end_->culprit);
        changed_.wait_for(lock, std::chrono::milliseconds(waiting.milliseconds_left()));
      }
      contributions = last_round_;
    }
    return *contributions;
  }

  /// Ends the participation of a rank. `failed`: whether an exception ends the rank.
  void leave(Rank rank, bool failed) {
    const std::lock_guard lock(mutex_);
    left_[static_cast<std::size_t>(rank)] = true;
    if (failed && !end_)
      finish({Errc::bootstrap, fmt::format("rank {} left the rendezvous: an error has ended it", rank), rank});
    changed_.notify_all();
  }

  void check_peers(Rank rank) {
    const std::lock_guard lock(mutex_);
    if (end_) throw Error(end_->code, end_->reason, rank, end_->culprit);
  }

 private:
  struct End {
    Errc code;
    std::string reason;
    Rank culprit;
  };

  void open_round(std::size_t size) {
    slots_.assign(size, {});
    here_.assign(size, false);
    arrived_ = 0;
  }

  void look_for_the_gone() {
    for (std::size_t rank = 0; rank < left_.size() && !end_; ++rank) {
      if (left_[rank] && !here_[rank]) {
        finish({Errc::bootstrap, fmt::format("rank {} left the rendezvous while the others were waiting for it", rank),
                static_cast<Rank>(rank)});
      }
    }
  }

  void finish(End end) {
    end_ = std::move(end);
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;
  std::vector<std::string> slots_;  // Contributions to the current exchange, by rank.
  std::vector<bool> here_;          // Whether each rank has arrived at the current exchange.
  std::size_t arrived_ = 0;
  std::vector<bool> left_;  // For each rank, whether it has destroyed its bootstrap.
  // Result of the last exchange. A rank that wakes late still finds it, because the next exchange cannot end without
  // that rank.
  std::shared_ptr<const std::vector<std::string>> last_round_;
  std::optional<End> end_;
};

class ThreadsBootstrap final : public Bootstrap {
 public:
  ThreadsBootstrap(std::shared_ptr<Rendezvous> rendezvous, Rank rank)
      : rendezvous_(std::move(rendezvous)), rank_(rank) {}
  ThreadsBootstrap(const ThreadsBootstrap&) = delete;
  ThreadsBootstrap& operator=(const ThreadsBootstrap&) = delete;
  ~ThreadsBootstrap() override { rendezvous_->leave(rank_, std::uncaught_exceptions() > 0); }

  std::string_view name() const noexcept override { return "threads"; }
  Rank rank() const noexcept override { return rank_; }
  int size() const noexcept override { return rendezvous_->size(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return rendezvous_->exchange(rank_, mine, deadline);
  }
  void check_peers() override { rendezvous_->check_peers(rank_); }

 private:
  std::shared_ptr<Rendezvous> rendezvous_;
  Rank rank_;
};

}  // namespace

std::vector<std::unique_ptr<Bootstrap>> bootstrap_threads(int ranks) {
  if (ranks < 1) throw Error(Errc::invalid_argument, fmt::format("bootstrap_threads({}): at least 1 rank", ranks));
  const auto rendezvous = std::make_shared<Rendezvous>(ranks);
  std::vector<std::unique_ptr<Bootstrap>> bootstraps;
  for (Rank rank = 0; rank < ranks; ++rank) bootstraps.push_back(std::make_unique<ThreadsBootstrap>(rendezvous, rank));
  return bootstraps;
}

}  // namespace collectives
