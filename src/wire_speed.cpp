#include "wire_speed.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
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
constexpr int kRoundTrips = 31;      // an odd number: the median is one of them
constexpr int kTrains = 9;           // of short messages
constexpr double kLongEnough = 700;  // us, for a rate
constexpr std::size_t kMostFrames = 128;

/// One rank's end of the conversation.
class Talk {
 public:
  Talk(Wire& wire, Rank other, Deadline deadline) : wire_(wire), other_(other), deadline_(deadline) {}

  void send(std::size_t bytes) {
    until([&] { return wire_.stage(other_) != nullptr; });
    std::memset(wire_.stage(other_), 0, bytes);
    wire_.send(other_, kTag, bytes);
  }
  std::size_t take() {
    until([&] { return wire_.receive(other_) != nullptr; });
    const std::size_t bytes = wire_.receive(other_)->bytes;
    wire_.release(other_);
    return bytes;
  }
  /// `frames` messages each way, at the same time.
  void swap(std::size_t frames) {
    const std::size_t bytes = wire_.frame_bytes();
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
  template <class Done>
  void until(Done&& done) {
    for (unsigned turn = 1; !done(); ++turn) {
      wire_.progress();
      if (turn % 64 != 0) continue;
      if (deadline_.passed()) throw Error(Errc::timeout, "measuring the wire took too long", kNoRank, other_);
      ::sched_yield();
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

/// The median of `N` times of `what`.
template <std::size_t N, class What>
double median_us(What&& what) {
  std::array<double, N> times;
  for (double& time : times) {
    const auto begun = Clock::now();
    what();
    time = us_since(begun);
  }
  std::ranges::sort(times);
  return times[N / 2];
}

}  // namespace

void WireSpeed::put_into(Tuning& tuning) const {
  tuning.wire_us = latency_us;
  tuning.wire_message_us = message_us;
  tuning.wire_us_per_byte = us_per_byte;
}

nlohmann::json WireSpeed::to_json() const {
  return {{"wire_us", latency_us}, {"wire_message_us", message_us}, {"wire_us_per_byte", us_per_byte}};
}

WireSpeed measure(Wire& wire, Rank other, bool first, Deadline deadline) {
  Talk talk(wire, other, deadline);
  const double round_trip = median_us<kRoundTrips>([&] {
    if (first) talk.send(kShort);
    talk.take();
    if (!first) talk.send(kShort);
  });
  const int train = std::max(2, wire.frames() - 1);
  const double several = median_us<kTrains>([&] {
    for (int i = 0; first && i < train; ++i) talk.send(kShort);
    for (int i = 0; i < (first ? 1 : train); ++i) talk.take();
    if (!first) talk.send(kShort);
  });
  // Both ends have to agree on how long the trains of long messages get: the first one says.
  double long_ones = 0;
  std::size_t frames = 4;
  for (bool again = true; again; frames *= 2) {
    const auto begun = Clock::now();
    talk.swap(frames);
    long_ones = us_since(begun) - round_trip / 2;
    const bool enough = frames > 4 && (long_ones >= kLongEnough || 2 * frames > kMostFrames);
    if (first) {
      talk.send(enough ? kShort : 2 * kShort);
      again = !enough;
    } else {
      again = talk.take() != kShort;
    }
  }
  const double bytes = static_cast<double>(frames / 2) * static_cast<double>(wire.frame_bytes());
  const double message = std::max(0.1, (several - round_trip) / (train - 1));
  return {.latency_us = std::max(0.1, round_trip / 2 - 2 * message),
          .message_us = message,
          .us_per_byte = std::max(0.1, long_ones) / bytes};
}

}  // namespace collectives
