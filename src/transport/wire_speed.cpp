#include "transport/wire_speed.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/wait.hpp"
#include "collectives/error.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTag = 0x73706565;
constexpr std::size_t kShort = 8;
constexpr std::size_t kTrains = 32;        // of short messages, for as long as that takes less than
constexpr double kTrips = 20'000;          // us, but at least
constexpr std::size_t kFewestTrains = 5;   // of them
constexpr std::size_t kTrainsInPlace = 8;  // before both sleep for a moment, and may wake up on other cores
constexpr int kTripsOfOne = 3;             // between two trips of a train
constexpr double kLongEnough = 700;        // us, for a rate
constexpr int kFewestSwaps = 3;            // of long trains: the first finds windows that are closed
constexpr int kSwaps = 10;                 // for as long as that takes less than
constexpr double kSwapping = 30'000;       // us: neighbours of a virtual machine take its cores for milliseconds
constexpr double kTogether = 4000;         // us of each long train while all pairs talk, at least: none stands out much
constexpr int kOpening = 2;                // of these find windows that are closed, when everybody begins
constexpr int kSwapsTogether = 5;          // and so many count
constexpr std::size_t kMostFrames = 128;
constexpr std::size_t kLeastLong = 64 << 10;  // bytes of a message of a long train; longer where the wire is fast
constexpr int kClockTrips = 40;
constexpr std::size_t kFolded = 128 << 10;  // elements of f32: the longest messages
constexpr int kFolds = 10;

/// Long messages, one after the other.
struct Train {
  std::size_t messages, bytes;  // of each
  double all() const { return static_cast<double>(messages) * static_cast<double>(bytes); }
};

/// The first one; twice as much as another: the faster the wire, the longer its messages may be and still take turns.
Train first_train(const Wire& wire) { return {4, std::min(wire.frame_bytes(), kLeastLong)}; }
Train twice(const Train& train, const Wire& wire) {
  if (2 * train.bytes <= wire.frame_bytes()) return {train.messages, 2 * train.bytes};
  return {2 * train.messages, train.bytes};
}

/// One rank's end of the conversation.
class Talk {
 public:
  Talk(Wire& wire, Rank other, Deadline deadline) : wire_(wire), other_(other), deadline_(deadline) {}

  void send(std::size_t bytes, std::int64_t number = 0) {
    until([&] { return wire_.acquire_frame(other_) != nullptr; });
    std::memset(wire_.acquire_frame(other_), 0, bytes);
    std::memcpy(wire_.acquire_frame(other_), &number, sizeof number);
    wire_.send(other_, kTag, bytes);
  }
  std::size_t take() {
    until([&] { return wire_.receive(other_) != nullptr; });
    const Message& message = *wire_.receive(other_);
    const std::size_t bytes = message.bytes;
    std::memcpy(&heard, message.data, sizeof heard);
    wire_.release(other_);
    return bytes;
  }
  std::int64_t heard = 0;  ///< the number in the message taken last
  /// Whether to sleep until something comes.
  bool dozing = false;

  /// A train each way, at the same time.
  void swap(const Train& train) {
    std::size_t sent = 0, taken = 0;
    until([&] {
      for (; sent < train.messages && wire_.acquire_frame(other_) != nullptr; ++sent) {
        clear(wire_.acquire_frame(other_), train.bytes);
        wire_.send(other_, kTag, train.bytes);
      }
      for (; taken < train.messages && wire_.receive(other_) != nullptr; ++taken) wire_.release(other_);
      return sent == train.messages && taken == train.messages;
    });
    // Both ways are over when both ends say so.
    send(kShort);
    take();
  }

 private:
  static constexpr unsigned kTurnsAlone = 8;  // then the other may be waiting for this very core

  template <class Done>
  void until(Done&& done) {
    Backoff backoff;
    for (unsigned turn = 1; !done(); ++turn) {
      wire_.progress();
      if (dozing) wire_.wait_for_event(std::chrono::milliseconds(1));
      if (turn > kTurnsAlone) backoff.wait();
      if (turn % 64 == 0 && deadline_.passed())
        throw Error(Errc::timeout, "measuring the wire took too long", kNoRank, other_);
    }
  }

  /// Nobody's old memory goes over the network; once for each frame and length.
  void clear(std::byte* frame, std::size_t bytes) {
    std::size_t& cleared = cleared_[frame];
    if (bytes > cleared) std::memset(frame + cleared, 0, bytes - cleared);
    cleared = std::max(cleared, bytes);
  }

  Wire& wire_;
  Rank other_;
  Deadline deadline_;
  std::map<std::byte*, std::size_t> cleared_;  // bytes of each frame
};

double us_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// What is usual when nothing disturbs: at most an eighth of the times are shorter.
double undisturbed(std::vector<double>& times) {
  std::ranges::sort(times);
  return times[times.size() / 8];
}

/// Adding f32 from the caches, where what has just come is: us for each byte of each source.
double measure_fold() {
  std::vector<float> one(kFolded, 1), other(kFolded, 2), sum(kFolded);
  const auto bytes = [](std::vector<float>& of) { return reinterpret_cast<std::byte*>(of.data()); };
  const Source sources[] = {{bytes(one)}, {bytes(other)}};
  double fastest = std::numeric_limits<double>::max();
  for (int i = 0; i < kFolds; ++i) {
    const auto begun = Clock::now();
    fold(ReduceOp::sum, DataType::f32, sources, bytes(sum), kFolded, 0);
    fastest = std::min(fastest, us_since(begun));
  }
  return std::max(0.1, fastest) / static_cast<double>(std::size(sources) * kFolded * sizeof(float));
}

}  // namespace

void WireSpeed::put_into(Tuning& tuning) const {
  tuning.wire_us = latency_us;
  tuning.wire_message_us = message_us;
  tuning.wire_us_per_byte = us_per_byte;
  tuning.wire_work_us_per_byte = std::min(tuning.wire_work_us_per_byte, work_us_per_byte);
  tuning.wire_together_us_per_byte = together_us_per_byte;
  tuning.reduce_us_per_byte = reduce_us_per_byte;
}

nlohmann::json WireSpeed::to_json() const {
  return {{"wire_us", latency_us},
          {"wire_message_us", message_us},
          {"wire_us_per_byte", us_per_byte},
          {"wire_work_us_per_byte", work_us_per_byte},
          {"wire_together_us_per_byte", together_us_per_byte},
          {"reduce_us_per_byte", reduce_us_per_byte}};
}

WireSpeed WireSpeed::from(const Tuning& tuning) {
  return {.latency_us = tuning.wire_us,
          .message_us = tuning.wire_message_us,
          .us_per_byte = tuning.wire_us_per_byte,
          .together_us_per_byte = tuning.wire_together_us_per_byte,
          .work_us_per_byte = tuning.wire_work_us_per_byte,
          .reduce_us_per_byte = tuning.reduce_us_per_byte};
}

WireSpeed measure(Wire& wire, Rank other, bool first, Deadline deadline) {
  Talk talk(wire, other, deadline);
  // Both ends have to agree on how long this goes on: the first one says, by the length of a message.
  const int in_a_row = std::max(2, wire.frames() - 1);
  std::vector<double> single, several;
  auto started = Clock::now();
  for (bool again = true; again;) {
    const auto trip = [&](int messages, std::size_t bytes, std::vector<double>& times) {
      const auto begun = Clock::now();
      std::size_t said = 0;
      for (int i = 0; first && i < messages; ++i) talk.send(bytes);
      for (int i = 0; i < (first ? 1 : messages); ++i) said = talk.take();
      if (!first) talk.send(kShort);
      times.push_back(us_since(begun));
      return first ? bytes : said;
    };
    // Two processes that have just started may be on one core, and stay there while both spin. Who is woken up gets one
    // that is free, if there is.
    if (several.size() % kTrainsInPlace == 0) {
      std::vector<double> not_this_one;
      talk.dozing = true;
      trip(1, kShort, not_this_one);
      talk.dozing = false;
    }
    if (several.empty()) started = Clock::now();  // not before the other is there, and connected
    for (int i = 0; i < kTripsOfOne; ++i) trip(1, kShort, single);
    const std::size_t with_this = several.size() + 1;
    const bool enough = with_this >= kTrains || (with_this >= kFewestTrains && us_since(started) >= kTrips);
    again = trip(in_a_row, enough ? 2 * kShort : kShort, several) == kShort;
  }
  const double round_trip = undisturbed(single), whole_train = undisturbed(several);

  double fastest = std::numeric_limits<double>::max();  // of the long trains, us
  Train train = twice(first_train(wire), wire);
  // What comes next, as said by the length of a message, too.
  enum Next : std::size_t { kOver = kShort, kAgain = 2 * kShort, kTwice = 3 * kShort };
  int swaps = 0;
  auto begun = Clock::now();
  started = begun;
  for (std::size_t next = kTwice; next != kOver;) {
    if (next == kTwice) {
      talk.swap(train);  // memory that is new takes longer than the wire
      begun = Clock::now();
    }
    talk.swap(train);
    const double time = us_since(begun) - round_trip / 2;
    if (!first)
      next = talk.take();
    else if (swaps == 0 && time < kLongEnough && 2 * train.messages <= kMostFrames)
      next = kTwice;
    else
      next = swaps + 1 < kFewestSwaps || (swaps + 1 < kSwaps && us_since(started) < kSwapping) ? kAgain : kOver;
    begun = Clock::now();  // before the other begins, or its train may be there when the clock is started
    if (first) talk.send(next);
    if (next == kTwice) {
      train = twice(train, wire);
    } else {
      fastest = std::min(fastest, time);
      ++swaps;
    }
  }
  const double message = std::max(0.1, (whole_train - round_trip) / (in_a_row - 1));
  const double us_per_byte = std::max(0.1, fastest) / train.all();
  return {.latency_us = std::max(0.1, round_trip / 2 - 2 * message),
          .message_us = message,
          .us_per_byte = us_per_byte,
          .work_us_per_byte = us_per_byte / 2,  // of both directions it took no longer than the whole
          .reduce_us_per_byte = measure_fold()};
}

double measure_together(Wire& wire, Rank other, const WireSpeed& alone, Deadline deadline) {
  Talk talk(wire, other, deadline);
  Train train = first_train(wire);
  while (alone.us_per_byte * train.all() < kTogether && 2 * train.messages <= kMostFrames) train = twice(train, wire);
  talk.swap({1, train.bytes});  // wait for the other, who may have gone about something else
  std::vector<double> times;
  for (int i = 0; i < kOpening; ++i) talk.swap(train);
  for (int i = 0; i < kSwapsTogether; ++i) {
    const auto begun = Clock::now();
    talk.swap(train);
    times.push_back(us_since(begun) - alone.latency_us - alone.message_us);
  }
  std::ranges::sort(times);  // the shortest may be of the time when the others were done
  return times[times.size() / 2] / train.all();
}

std::int64_t ask_for_clock(Wire& wire, Rank other, Deadline deadline) {
  Talk talk(wire, other, deadline);
  auto shortest = std::chrono::nanoseconds::max();
  std::int64_t ahead = 0;
  for (int trip = 0; trip < kClockTrips; ++trip) {
    talk.dozing = trip == 0;  // the other may have gone about something else
    const auto asked = Clock::now().time_since_epoch();
    talk.send(kShort);
    talk.take();
    const std::chrono::nanoseconds took = Clock::now().time_since_epoch() - asked;
    if (took < shortest) shortest = took, ahead = talk.heard - (asked + took / 2).count();
  }
  return ahead;
}

void answer_with_clock(Wire& wire, Rank other, Deadline deadline) {
  Talk talk(wire, other, deadline);
  for (int trip = 0; trip < kClockTrips; ++trip) {
    talk.dozing = trip == 0;
    talk.take();
    talk.send(kShort, std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }
}

}  // namespace collectives
