// Benchmark of the codecs, which convert f32 values to fewer bytes and back. Each codec is compared with memcpy. The
// speed is in bytes read and written per second. Codec and memcpy read and write equally many bytes in total, so a
// codec that is as fast as memcpy has the ratio 1.
//
// The benchmark runs codec and memcpy in turns of some microseconds, because the speed of a machine changes from one
// second to the next. The results are medians.
//
// The name of a result is "encode" or "decode", the codec and the number of elements, with slashes between them.
// Counter GB_s is the speed of the codec, memcpy_GB_s that of memcpy, and share_of_memcpy is their ratio.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "collectives/codec.hpp"
#include "reduction/dispatch.hpp"

namespace collectives {
namespace {

using Seconds = std::chrono::duration<double>;

/// Memory that starts at a cache line. All its pages are allocated in advance.
template <class T>
class Lines {
 public:
  explicit Lines(std::size_t count) : memory_(count * sizeof(T) + kLine, std::byte{1}), count_(count) {}
  T* data() { return reinterpret_cast<T*>(memory_.data() + to_next_line(memory_.data())); }
  std::span<T> span() { return {data(), count_}; }

 private:
  std::vector<std::byte> memory_;
  std::size_t count_;
};

enum class Direction : std::uint8_t { encode, decode };

void convert(benchmark::State& state, const Codec& codec, Direction direction) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::size_t coded = codec.encoded_bytes(count), moved = coded + count * sizeof(float), copied = moved / 2;
  Lines<float> values(count);
  Lines<std::byte> wire(coded), from(copied), to(copied);
  std::mt19937 random(1);
  std::ranges::generate(values.span(), [&] { return std::normal_distribution<float>()(random); });
  codec.encode(values.span(), wire.data());

  const std::size_t turns = std::max<std::size_t>(1, (256 << 10) / moved);
  const auto timed = [&](auto&& action) {
    const auto start = std::chrono::steady_clock::now();
    for (std::size_t turn = 0; turn < turns; ++turn) {
      action();
      benchmark::ClobberMemory();
    }
    return Seconds(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> in_codec, in_memcpy;
  for (auto _ : state) {
    in_memcpy.push_back(timed([&] { std::memcpy(to.data(), from.data(), copied); }));
    const double seconds = timed([&] {
      if (direction == Direction::encode) {
        codec.encode(values.span(), wire.data());
      } else {
        codec.decode(wire.data(), values.span());
      }
    });
    in_codec.push_back(seconds);
    state.SetIterationTime(seconds);
  }
  const auto median = [](std::vector<double>& times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
  };
  const double bytes = static_cast<double>(turns * moved), codec_s = median(in_codec), memcpy_s = median(in_memcpy);
  state.counters["GB_s"] = bytes / codec_s / 1e9;
  state.counters["memcpy_GB_s"] = bytes / memcpy_s / 1e9;
  state.counters["share_of_memcpy"] = memcpy_s / codec_s;
}

[[maybe_unused]] const bool registered = [] {
  for (const Codec* const codec : codecs()) {
    for (const Direction direction : {Direction::encode, Direction::decode}) {
      const std::string name =
          std::string(direction == Direction::encode ? "encode/" : "decode/") + std::string(codec->name());
      // Numbers of elements that fit into the L1 cache, into the L2 cache, and only into memory. The last two are 64
      // MiB and 256 MiB.
      benchmark::RegisterBenchmark(name.c_str(),
                                   [codec, direction](benchmark::State& state) { convert(state, *codec, direction); })
          ->UseManualTime()
          ->Arg(2 << 10)
          ->Arg(4 << 10)
          ->Arg(32 << 10)
          ->Arg(128 << 10)
          ->Arg(1 << 20)
          ->Arg(4 << 20)
          ->Arg(16 << 20)
          ->Arg(64 << 20);
    }
  }
  return true;
}();

}  // namespace
}  // namespace collectives
