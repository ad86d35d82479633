// Random schedules of point-to-point calls beside collectives, against an oracle: none may block, and every message
// must arrive at its receive.
//
// A schedule is a list of events, which all ranks derive from one number. An event is a collective of all ranks or one
// message. Each rank performs its part of the events in order, by blocking calls or by asynchronous ones that it waits
// for later, in any order. A schedule has no cycle of waits, because every rank can perform the oldest unfinished
// event. MESSAGE_SCHEDULES=20000 in the environment runs that many schedules per test in place of a few. They take half
// an hour, so COLLECTIVES_TEST_WATCHDOG=7200 allows each test more than its two minutes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.hpp"
#include "support/hosts.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using Random = std::minstd_rand;

std::size_t below(Random& random, std::size_t limit) { return random() / 7 % limit; }

struct Event {
  bool collective = false;
  Rank from = 0, to = 0;
  int tag = 0;
  std::size_t length = 0;
  bool any = false;  // whether the receive names no source; its tag then belongs to this event alone
};

std::vector<Event> events_of(Random& random, int ranks, std::size_t count) {
  constexpr std::size_t kLimits[] = {9, 64, 600, 20'000, 150'000};
  std::vector<Event> events(count);
  int number = 100;
  for (Event& one : events) {
    ++number;
    one.collective = below(random, 5) == 0;
    one.from = static_cast<Rank>(below(random, static_cast<std::size_t>(ranks)));
    one.to = static_cast<Rank>(below(random, static_cast<std::size_t>(ranks)));
    one.any = below(random, 4) == 0;
    one.tag = one.any ? number : static_cast<int>(below(random, 3));
    one.length = below(random, kLimits[std::min(below(random, 8), std::size(kLimits) - 1)]);
  }
  return events;
}

std::byte byte_of(std::size_t event, std::size_t at) { return static_cast<std::byte>(event * 37 + at * 11 + at / 251); }

/// Call under way, with its buffer.
struct Begun {
  std::size_t event = 0;
  std::vector<std::byte> data;
  std::vector<int> sum;
  Work work;
};

class Player {
 public:
  Player(Communicator& comm, std::vector<Event> events, unsigned seed)
      : comm_(comm), events_(std::move(events)), random_(seed * 64 + static_cast<unsigned>(comm.rank()) + 1) {}

  void play() {
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const Event& event = events_[i];
      if (event.collective) reduce(i);
      const bool to_itself = event.from == event.to;
      if (!event.collective && event.to == comm_.rank()) receive(i, to_itself);
      if (!event.collective && event.from == comm_.rank()) send(i);
      if (below(random_, 3) == 0 && !begun_.empty())
        finish(std::next(begun_.begin(), static_cast<std::ptrdiff_t>(below(random_, begun_.size()))));
    }
    while (!begun_.empty())
      finish(std::next(begun_.begin(), static_cast<std::ptrdiff_t>(below(random_, begun_.size()))));
  }

 private:
  void reduce(std::size_t i) {
    Begun& one = begun_.emplace_back();
    one.event = i;
    one.sum.assign(1 + events_[i].length / 100, comm_.rank() + static_cast<int>(i));
    if (below(random_, 2) == 0) {
      comm_.all_reduce(one.sum);
      finish(std::prev(begun_.end()));
    } else {
      one.work = comm_.all_reduce_async(one.sum, one.sum);
    }
  }
  void send(std::size_t i) {
    const Event& event = events_[i];
    Begun& one = begun_.emplace_back();
    one.event = i;
    for (std::size_t at = 0; at < event.length; ++at) one.data.push_back(byte_of(i, at));
    if (below(random_, 2) == 0) {
      comm_.send(one.data, event.to, event.tag);
      begun_.pop_back();
    } else {
      one.work = comm_.send_async(one.data, event.to, event.tag);
    }
  }
  void receive(std::size_t i, bool to_itself) {
    const Event& event = events_[i];
    Begun& one = begun_.emplace_back();
    one.event = i;
    one.data.resize(event.length);
    const Rank from = event.any ? any_source : event.from;
    if (!to_itself && below(random_, 2) == 0) {
      ASSERT_EQ(comm_.recv(one.data, from, event.tag), event.from);
      finish(std::prev(begun_.end()));
    } else {
      one.work = comm_.recv_async(one.data, from, event.tag);
    }
  }
  void finish(std::list<Begun>::iterator one) {
    one->work.wait();
    const Event& event = events_[one->event];
    if (event.collective) {
      const int p = comm_.size(), expected = p * (p - 1) / 2 + p * static_cast<int>(one->event);
      for (const int sum : one->sum) ASSERT_EQ(sum, expected);
    } else {
      ASSERT_TRUE(one->work.source() == kNoRank || one->work.source() == event.from);
      for (std::size_t at = 0; at < event.length; ++at)
        ASSERT_EQ(one->data[at], byte_of(one->event, at)) << "event " << one->event << " byte " << at;
    }
    begun_.erase(one);
  }

  Communicator& comm_;
  std::vector<Event> events_;
  Random random_;
  std::list<Begun> begun_;
};

unsigned schedules(unsigned few) {
  const char* const many = std::getenv("MESSAGE_SCHEDULES");
  return many != nullptr ? static_cast<unsigned>(std::stoul(many)) : few;
}

void play_on(const std::vector<int>& hosts, unsigned count, std::size_t events) {
  run_hosts(hosts,
            [&](Communicator& comm) {
              for (unsigned seed = 0; seed < count; ++seed) {
                Random random(seed + 1);
                Player(comm, events_of(random, comm.size(), events), seed).play();
                ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "schedule " << seed;
              }
            },
            {.timeout = std::chrono::seconds(60)});
}

TEST(MessageSchedules, OfTwoRanksOfOneHostEnd) { play_on({0, 0}, schedules(50), 40); }
TEST(MessageSchedules, OfFourRanksOfOneHostEnd) { play_on({0, 0, 0, 0}, schedules(20), 40); }
TEST(MessageSchedules, OfTwoHostsEnd) { play_on({0, 1}, schedules(20), 40); }
TEST(MessageSchedules, OfTwoHostsWithTwoRanksEnd) { play_on({0, 0, 1, 1}, schedules(10), 40); }

TEST(MessageSchedules, EndBesideCollectivesOfAnotherThread) {
  run_hosts({0, 0, 0},
            [](Communicator& comm) {
              std::jthread collectives([&] {
                for (int i = 0; i < 300; ++i) {
                  std::vector<int> sum(1 + static_cast<std::size_t>(i), 1);
                  comm.all_reduce(sum);
                  ASSERT_EQ(sum.back(), comm.size());
                }
              });
              for (unsigned seed = 0; seed < schedules(8); ++seed) {
                Random random(seed + 1);
                std::vector<Event> events = events_of(random, comm.size(), 40);
                std::erase_if(events, [](const Event& one) { return one.collective; });
                Player(comm, events, seed).play();
                if (::testing::Test::HasFatalFailure()) break;
              }
            },
            {.timeout = std::chrono::seconds(60)});
}

}  // namespace
}  // namespace collectives::testing
