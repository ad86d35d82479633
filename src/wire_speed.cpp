#include "wire_speed.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/error.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTag = 0x73706565;
constexpr std::size_t kShort = 8;
constexpr double kTrips = 3000;      // us of conversation in short messages, at least
constexpr std::size_t kTrains = 5;   // and so many trains of them
constexpr int kTripsOfOne = 3;       // between two trips of a train
constexpr double kLongEnough = 700;  // us, for a rate
constexpr int kSwaps = 3;            // of long trains: the first finds windows that are closed
constexpr double kTogether = 4000;   // us of each long train while all pairs talk: none of them stands out much
constexpr int kOpening = 2;          // of these find windows that are closed, when everybody begins
constexpr int kSwapsTogether = 5;    // and so many count
constexpr std::size_t kMostFrames = 128;
constexpr std::size_t kLongest = 64 << 10;  // bytes of a message of a long train, at most
constexpr int kClockTrips = 40;

std::size_t long_message(const Wire& wire) { return std::min(wire.frame_bytes(), kLongest); }

/// One rank's end of the conversation.
class Talk {
 public:
  Talk(Wire& wire, Rank other, Deadline deadline) : wire_(wire), other_(other), deadline_(deadline) {}

  void send(std::size_t bytes, std::int64_t number = 0) {
    until([&] { return wire_.stage(other_) != nullptr; });
    std::memset(wire_.stage(other_), 0, bytes);
    std::memcpy(wire_.stage(other_), &number, sizeof number);
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

  /// `frames` messages each way, at the same time.
  void swap(std::size_t frames) {
    const std::size_t bytes = long_message(wire_);
    std::size_t sent = 0, taken = 0;
    until([&] {
      for (; sent < frames && wire_.stage(other_) != nullptr; ++sent) {
        clear(wire_.stage(other_), bytes);
        wire_.send(other_, kTag, bytes);
      }
      for (; taken < frames && wire_.receive(other_) != nullptr; ++taken) wire_.release(other_);
      return sent == frames && taken == frames;
    });
    // Both ways are over when both ends say so.
    send(kShort);
    take();
  }

 private:
  static constexpr unsigned kTurnsAlone = 8;  // then the other may be waiting for this very core

  template <class Done>
  void until(Done&& done) {
    for (unsigned turn = 1; !done(); ++turn) {
      wire_.progress();
      if (dozing) wire_.doze(std::chrono::milliseconds(1));
      if (turn > kTurnsAlone) ::sched_yield();
      if (turn % 64 == 0 && deadline_.passed())
        throw Error(Errc::timeout, "measuring the wire took too long", kNoRank, other_);
    }
  }

  /// Nobody's old memory goes over the network; once for each frame.
  void clear(std::byte* frame, std::size_t bytes) {
    if (std::ranges::find(cleared_, frame) != cleared_.end()) return;
    std::memset(frame, 0, bytes);
    cleared_.push_back(frame);
  }

  Wire& wire_;
  Rank other_;
  Deadline deadline_;
  std::vector<std::byte*> cleared_;
};

double us_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
}

/// What is usual when nothing disturbs: at most an eighth of the times are shorter.
double undisturbed(std::vector<double>& times) {
  std::ranges::sort(times);
  return times[times.size() / 8];
}

}  // namespace

void WireSpeed::put_into(Tuning& tuning) const {
  tuning.wire_us = latency_us;
  tuning.wire_message_us = message_us;
  tuning.wire_us_per_byte = us_per_byte;
  tuning.wire_together_us_per_byte = together_us_per_byte;
}

nlohmann::json WireSpeed::to_json() const {
  return {{"wire_us", latency_us},
          {"wire_message_us", message_us},
          {"wire_us_per_byte", us_per_byte},
          {"wire_together_us_per_byte", together_us_per_byte}};
}

WireSpeed WireSpeed::from(const Tuning& tuning) {
  return {.latency_us = tuning.wire_us,
          .message_us = tuning.wire_message_us,
          .us_per_byte = tuning.wire_us_per_byte,
          .together_us_per_byte = tuning.wire_together_us_per_byte};
}

WireSpeed measure(Wire& wire, Rank other, bool first, Deadline deadline) {
  Talk talk(wire, other, deadline);
  // Both ends have to agree on how long this goes on: the first one says, by the length of a message.
  const int train = std::max(2, wire.frames() - 1);
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
    std::vector<double> not_this_one;
    talk.dozing = true;
    trip(1, kShort, not_this_one);
    talk.dozing = false;
    if (several.empty()) started = Clock::now();  // not before the other is there, and connected
    for (int i = 0; i < kTripsOfOne; ++i) trip(1, kShort, single);
    again = trip(train, us_since(started) < kTrips || several.size() < kTrains - 1 ? kShort : 2 * kShort, several) ==
            kShort;
  }
  const double round_trip = undisturbed(single), whole_train = undisturbed(several);

  double fastest = 0;  // of the long trains, us
  std::size_t frames = 4;
  for (int enough = 0; enough < kSwaps;) {
    const auto begun = Clock::now();
    talk.swap(frames);
    const double time = us_since(begun) - round_trip / 2;
    bool grow = frames == 4 || (time < kLongEnough && 2 * frames <= kMostFrames && enough == 0);
    if (first)
      talk.send(grow ? 2 * kShort : kShort);
    else
      grow = talk.take() != kShort;
    if (grow) {
      frames *= 2;
    } else {
      fastest = enough++ == 0 ? time : std::min(fastest, time);
    }
  }
  const double bytes = static_cast<double>(frames) * static_cast<double>(long_message(wire));
  const double message = std::max(0.1, (whole_train - round_trip) / (train - 1));
  return {.latency_us = std::max(0.1, round_trip / 2 - 2 * message),
          .message_us = message,
          .us_per_byte = std::max(0.1, fastest) / bytes};
}

double measure_together(Wire& wire, Rank other, const WireSpeed& alone, Deadline deadline) {
  Talk talk(wire, other, deadline);
  const auto frame = static_cast<double>(long_message(wire));
  const auto frames =
      std::clamp<std::size_t>(static_cast<std::size_t>(kTogether / (alone.us_per_byte * frame)), 4, kMostFrames);
  talk.swap(1);  // wait for the other, who may have gone about something else
  std::vector<double> times;
  for (int i = 0; i < kOpening; ++i) talk.swap(frames);
  for (int i = 0; i < kSwapsTogether; ++i) {
    const auto begun = Clock::now();
    talk.swap(frames);
    times.push_back(us_since(begun) - alone.latency_us - alone.message_us);
  }
  std::ranges::sort(times);  // the shortest may be of the time when the others were done
  return times[times.size() / 2] / (static_cast<double>(frames) * frame);
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
