// Implementation of the measurement of the wire, the transport between hosts. One rank of each of two hosts takes part.
//
// A train is a series of messages that a rank sends without waiting for an answer. The round trip of one short message
// gives the latency. The additional time that a train of short messages takes gives the time per message. In a swap,
// both ranks send a train of long messages to each other at the same time, which gives the time per byte.
//
// This file also measures the difference between the clocks of two hosts, by round trips of short messages.
#include "communicator/wire_speed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/reported_wait.hpp"
#include "base/wait.hpp"
#include "collectives/error.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTag = 0x73706565;  // Tag of all messages of the measurement: "spee" in ASCII.
constexpr std::size_t kShort = 8;           // Length of a short message in bytes.
// Limits of the measurement with short messages.
constexpr std::size_t kTrains = 32;        // Maximum number of trains.
constexpr double kTrips = 20'000;          // Time in microseconds after which kFewestTrains trains suffice.
constexpr std::size_t kFewestTrains = 5;   // Minimum number of trains, even if they take longer than kTrips.
constexpr std::size_t kTrainsInPlace = 8;  // Number of trains after which both ranks sleep briefly.
constexpr int kTripsOfOne = 3;             // Number of round trips of one message before each train.

// Limits of the measurement with long messages between two hosts, which consists of swaps.
constexpr double kLongEnough = 700;   // Minimum time of a swap in microseconds. Shorter swaps are doubled.
constexpr int kFewestSwaps = 3;       // Minimum number of swaps. TCP windows are small in the first swaps.
constexpr int kSwaps = 10;            // Maximum number of swaps.
constexpr double kSwapping = 30'000;  // Time in microseconds after which kFewestSwaps swaps suffice.

// Numbers of the measurement with long messages between all pairs of hosts at once.
constexpr double kTogether = 4000;  // Wanted time of a swap in microseconds: long enough that all pairs overlap.
constexpr int kOpening = 2;         // Number of first swaps, not timed because TCP windows are small.
constexpr int kSwapsTogether = 5;   // Number of swaps that are timed.

constexpr std::size_t kMostFrames = 128;      // Maximum number of messages of a train.
constexpr std::size_t kLeastLong = 64 << 10;  // Initial length in bytes of long messages.
constexpr int kClockTrips = 40;               // Number of round trips of a clock measurement.
constexpr std::size_t kFolded = 128 << 10;    // Number of f32 elements that are added to measure the rate of sums.
constexpr int kFolds = 10;                    // Number of times that they are added; the shortest time counts.

/// Length of a train of long messages.
struct Train {
  std::size_t messages, bytes;  // Number of messages, and bytes of each.
  double all() const { return static_cast<double>(messages) * static_cast<double>(bytes); }
};

/// Returns the first train: four messages.
Train first_train(const Wire& wire) { return {4, std::min(wire.frame_bytes(), kLeastLong)}; }
/// Returns a train with twice the bytes. Makes the messages longer until they have the wire's maximum length, then
/// increases their number.
Train twice(const Train& train, const Wire& wire) {
  if (2 * train.bytes <= wire.frame_bytes()) return {train.messages, 2 * train.bytes};
  return {2 * train.messages, train.bytes};
}

/// One end of the measurement: sends messages to the other end, and receives messages from it.
class Talk {
 public:
  explicit Talk(const WireEnd& end)
      : wire_(end.wire),
        other_(end.other),
        waiting_(
            "answer in the measurement of the wire", end.self, end.deadline,
            [other = end.other] { return ReportedWait::Awaited{.ranks = {other}}; }, [this, &end] { check(end); }) {}
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

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
    if (message.tag != kTag || bytes < sizeof heard) refuse();
    std::memcpy(&heard, message.data, sizeof heard);
    wire_.release(other_);
    return bytes;
  }
  /// Throws because the other rank has sent a message that the protocol does not allow.
  [[noreturn]] void refuse() const {
    throw Error(Errc::bootstrap,
                fmt::format("rank {} sent a message that does not belong to the measurement of the wire", other_),
                kNoRank, other_);
  }
  std::int64_t heard = 0;  ///< Number that the last received message contained.
  /// Whether a wait for a message sleeps instead of polling.
  bool dozing = false;

  /// Sends a train and receives one at the same time.
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
    // Waits until the other end has received its train, too.
    send(kShort);
    take();
  }

 private:
  static constexpr unsigned kTurnsAlone = 8;  // Number of polls before each yield: the other rank may need this core.
  static constexpr unsigned kTurnsPerCheck = 64;

  /// Throws if a peer is gone. The bootstrap or the wire may notice that.
  void check(const WireEnd& end) {
    if (end.check_peers) end.check_peers();
    while (wire_.poll_control()) continue;  // No rank has made a call yet, so no message concerns one.
    if (const auto lost = wire_.poll_failed_peer())
      throw Error(Errc::peer_lost,
                  fmt::format("rank {} was lost while the wire was measured ({})", lost->first, lost->second), end.self,
                  lost->first);
  }

  template <class Done>
  void until(Done&& done) {
    Backoff backoff;
    for (unsigned turn = 1; !done(); ++turn) {
      wire_.progress();
      if (dozing) wire_.wait_for_event(std::chrono::milliseconds(1));
      if (turn > kTurnsAlone) backoff.wait();
      if (turn % kTurnsPerCheck == 0) waiting_.turn();
    }
  }

  /// Clears a frame, the memory for a message, so that no old contents are sent. Does so only once for each frame and
  /// length.
  void clear(std::byte* frame, std::size_t bytes) {
    std::size_t& cleared = cleared_[frame];
    if (bytes > cleared) std::memset(frame + cleared, 0, bytes - cleared);
    cleared = std::max(cleared, bytes);
  }

  Wire& wire_;
  Rank other_;
  ReportedWait waiting_;
  std::map<std::byte*, std::size_t> cleared_;  // Number of cleared bytes of each frame.
};

double us_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// Returns the time that counts as undisturbed by other load: an eighth of the times are shorter.
double undisturbed(std::vector<double>& times) {
  std::ranges::sort(times);
  return times[times.size() / 8];
}

/// Undisturbed times of short messages in microseconds.
struct ShortTimes {
  double round_trip;   ///< Time of one message there and one back.
  double whole_train;  ///< Time of a train there and one message back.
};

/// Sends `messages` messages of `bytes` bytes from the first rank to the other one, which answers the last of them.
/// Appends the time to `times`. Returns the length of the messages. The other rank ignores its own `bytes`.
std::size_t trip(Talk& talk, bool first, int messages, std::size_t bytes, std::vector<double>& times) {
  const auto begun = Clock::now();
  std::size_t said = 0;
  for (int i = 0; first && i < messages; ++i) talk.send(bytes);
  for (int i = 0; i < (first ? 1 : messages); ++i) said = talk.take();
  if (!first) talk.send(kShort);
  times.push_back(us_since(begun));
  return first ? bytes : said;
}

/// Measures single messages and trains of `in_a_row` messages. The first rank decides when the measurement ends. It
/// tells the other rank by its messages' length.
ShortTimes measure_short_messages(Talk& talk, bool first, int in_a_row) {
  std::vector<double> single, several;
  auto started = Clock::now();
  for (bool again = true; again;) {
    // Two new processes may share a core, and stay there while both spin. A process that wakes up gets a free core.
    if (several.size() % kTrainsInPlace == 0) {
      std::vector<double> not_this_one;
      talk.dozing = true;
      trip(talk, first, 1, kShort, not_this_one);
      talk.dozing = false;
    }
    if (several.empty()) started = Clock::now();  // The clock starts after the first message has arrived.
    for (int i = 0; i < kTripsOfOne; ++i) trip(talk, first, 1, kShort, single);
    const std::size_t with_this = several.size() + 1;
    const bool enough = with_this >= kTrains || (with_this >= kFewestTrains && us_since(started) >= kTrips);
    again = trip(talk, first, in_a_row, enough ? 2 * kShort : kShort, several) == kShort;
    if (again && with_this >= kTrains) talk.refuse();
  }
  return {.round_trip = undisturbed(single), .whole_train = undisturbed(several)};
}

/// Returns the microseconds per byte in the fastest swap of long messages. Doubles the train until a swap takes
/// kLongEnough. `round_trip`: time of a short message there and back.
double measure_long_messages(Talk& talk, const Wire& wire, bool first, double round_trip) {
  double fastest = std::numeric_limits<double>::max();  // Time of the fastest swap in microseconds.
  Train train = twice(first_train(wire), wire);
  // Next action of the measurement. The first rank decides. It tells the other rank by the length of a message.
  enum Next : std::size_t { kOver = kShort, kAgain = 2 * kShort, kTwice = 3 * kShort };
  int swaps = 0;
  const auto allowed = [&](std::size_t told) {
    const bool may_double = swaps == 0 && 2 * train.messages <= kMostFrames;
    if (told != kOver && !(told == kAgain && swaps + 1 < kSwaps) && !(told == kTwice && may_double)) talk.refuse();
    return told;
  };
  auto begun = Clock::now();
  const auto started = begun;
  for (std::size_t next = kTwice; next != kOver;) {
    if (next == kTwice) {
      talk.swap(train);  // This swap does not count: new memory takes longer than the wire.
      begun = Clock::now();
    }
    talk.swap(train);
    const double time = us_since(begun) - round_trip / 2;
    if (!first)
      next = allowed(talk.take());
    else if (swaps == 0 && time < kLongEnough && 2 * train.messages <= kMostFrames)
      next = kTwice;
    else
      next = swaps + 1 < kFewestSwaps || (swaps + 1 < kSwaps && us_since(started) < kSwapping) ? kAgain : kOver;
    begun = Clock::now();  // The clock starts before send(), because the other rank may answer at once.
    if (first) talk.send(next);
    if (next == kTwice) {
      train = twice(train, wire);
    } else {
      fastest = std::min(fastest, time);
      ++swaps;
    }
  }
  return std::max(0.1, fastest) / train.all();
}

/// Measures a sum of f32 in the caches, because arrived data are there. Returns microseconds per byte of each source.
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

void WireSpeed::put_into(TuningParameters& tuning) const {
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

WireSpeed WireSpeed::from(const TuningParameters& tuning) {
  return {.latency_us = tuning.wire_us,
          .message_us = tuning.wire_message_us,
          .us_per_byte = tuning.wire_us_per_byte,
          .together_us_per_byte = tuning.wire_together_us_per_byte,
          .work_us_per_byte = tuning.wire_work_us_per_byte,
          .reduce_us_per_byte = tuning.reduce_us_per_byte};
}

WireSpeed measure(const WireEnd& end, bool first) {
  Talk talk(end);
  const Wire& wire = end.wire;
  const int in_a_row = std::max(2, wire.frames() - 1);
  const ShortTimes times = measure_short_messages(talk, first, in_a_row);
  const double us_per_byte = measure_long_messages(talk, wire, first, times.round_trip);
  const double message = std::max(0.1, (times.whole_train - times.round_trip) / (in_a_row - 1));
  return {.latency_us = std::max(0.1, times.round_trip / 2 - 2 * message),
          .message_us = message,
          .us_per_byte = us_per_byte,
          .work_us_per_byte = us_per_byte / 2,  // A rank does the work of both directions in this time.
          .reduce_us_per_byte = measure_fold()};
}

double measure_together(const WireEnd& end, const WireSpeed& alone) {
  Talk talk(end);
  const Wire& wire = end.wire;
  Train train = first_train(wire);
  while (alone.us_per_byte * train.all() < kTogether && 2 * train.messages <= kMostFrames) train = twice(train, wire);
  talk.swap({1, train.bytes});  // Waits for the other rank, which may be busy.
  std::vector<double> times;
  for (int i = 0; i < kOpening; ++i) talk.swap(train);
  for (int i = 0; i < kSwapsTogether; ++i) {
    const auto begun = Clock::now();
    talk.swap(train);
    times.push_back(us_since(begun) - alone.latency_us - alone.message_us);
  }
  std::ranges::sort(times);  // Takes the median: in the shortest swap, other pairs may have ended already.
  return times[times.size() / 2] / train.all();
}

std::int64_t ask_for_clock(const WireEnd& end) {
  Talk talk(end);
  auto shortest = std::chrono::nanoseconds::max();
  std::int64_t ahead = 0;
  for (int trip = 0; trip < kClockTrips; ++trip) {
    talk.dozing = trip == 0;  // The other rank may be busy.
    const auto asked = Clock::now().time_since_epoch();
    talk.send(kShort);
    talk.take();
    const std::chrono::nanoseconds took = Clock::now().time_since_epoch() - asked;
    if (took >= shortest) continue;
    shortest = took;
    if (__builtin_sub_overflow(talk.heard, (asked + took / 2).count(), &ahead)) talk.refuse();
  }
  return ahead;
}

void answer_with_clock(const WireEnd& end) {
  Talk talk(end);
  for (int trip = 0; trip < kClockTrips; ++trip) {
    talk.dozing = trip == 0;
    talk.take();
    talk.send(kShort, std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }
}

}  // namespace collectives
