// Benchmark of select(), a part of top-k compression (compression/select.hpp). The function adds a gradient of n
// elements to an accumulated vector, and selects the k elements with the largest magnitude. The other elements stay in
// that vector, as the residual. The benchmark compares select() with a lower bound and with std::nth_element. The lower
// bound only adds the gradient, which reads 2n floats and writes n. std::nth_element gets pairs of magnitude and index,
// each packed into one integer.
//
// The name of a result is: source of the elements/n/n divided by k. A round times select(), the lower bound and
// std::nth_element once each, so that all three run under similar conditions. Times are CPU times, and counters are
// medians over rounds. Counter `passes` is the time of select() divided by that of the lower bound. Counter
// `x_nth_element` is std::nth_element's time divided by that of select(). Counter `x_both` is the same, but adds the
// time of the addition to that of std::nth_element. Several gradients are made in advance and used in turns. The
// residual of one selection is the start of the next, as in training.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <ctime>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "collectives/types.hpp"
#include "compression/select.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

using Vector = std::vector<float>;
/// Function that fills `gradient` with values. Equal `draw` gives equal values.
using Filling = std::function<void(Vector& gradient, std::size_t draw)>;

struct Row {
  std::string name;
  Filling filling;
  bool feedback = true;   ///< whether select() adds to an accumulated vector
  bool carried = true;    ///< whether the next selection starts with this one's residual and threshold
  bool threshold = true;  ///< whether it starts with this one's threshold, even if `carried` is false
  bool velocity = false;
};

constexpr std::size_t kDraws = 6;
constexpr std::size_t kPairsRounds = 9;  // rounds of std::nth_element; few, because it takes long

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const std::function<void()>& action) {
  const double start = processor_seconds();
  action();
  benchmark::ClobberMemory();
  return processor_seconds() - start;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void select_pairs(const Vector& from, std::vector<std::uint64_t>& pairs, std::size_t k, std::uint32_t* indices,
                  float* values) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::uint64_t key = std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffff;
    pairs[i] = key << 32 | static_cast<std::uint32_t>(~i);
  }
  const auto end = pairs.begin() + static_cast<std::ptrdiff_t>(k);
  std::ranges::nth_element(pairs, end, std::ranges::greater());
  std::transform(pairs.begin(), end, indices, [](std::uint64_t pair) { return ~static_cast<std::uint32_t>(pair); });
  std::sort(indices, indices + k);
  for (std::size_t c = 0; c < k; ++c) values[c] = from[indices[c]];
}

void selection(benchmark::State& state, const Row& row) {
  const auto n = static_cast<std::size_t>(state.range(0)), k = n / static_cast<std::size_t>(state.range(1));
  std::vector<Vector> gradients(kDraws, Vector(n));
  for (std::size_t draw = 0; draw < kDraws; ++draw) row.filling(gradients[draw], draw);
  Vector accumulated(n), velocity(row.velocity ? n : 0), plain(n), values(k);
  std::vector<std::uint32_t> indices(k);
  std::vector<std::uint64_t> pairs(n);
  Selector selector;
  const auto select = [&](std::size_t step) {
    const SelectionInput input{.gradient = gradients[step % kDraws],
                               .accumulated = std::span(accumulated).first(row.feedback ? n : 0),
                               .velocity = velocity,
                               .momentum = 0.9f};
    benchmark::DoNotOptimize(selector.select(input, k, indices.data(), values.data()));
  };
  std::size_t step = 0;
  if (row.carried) {
    while (step < 100) select(step++);  // until residuals have reached their final size
  }
  std::vector<double> select_times, pass_times, pairs_times;
  for (auto _ : state) {
    if (!row.carried) {
      std::ranges::fill(accumulated, 0.f);
      if (!row.threshold) selector.set_threshold(0);
    }
    // Another gradient than the next one, so that select() does not find it in a cache.
    const Source other{reinterpret_cast<const std::byte*>(gradients[(step + kDraws / 2) % kDraws].data()), true};
    auto* const sum = reinterpret_cast<std::byte*>(plain.data());
    pass_times.push_back(seconds_of([&] {
      fold(ReduceOp::sum, DataType::f32, std::vector<Source>{{sum, true}, other}, sum, n, 1);
    }));
    if (pairs_times.size() < kPairsRounds) {
      pairs_times.push_back(
          seconds_of([&] { select_pairs(gradients[step % kDraws], pairs, k, indices.data(), values.data()); }));
    }
    select_times.push_back(seconds_of([&] { select(step); }));
    state.SetIterationTime(select_times.back());
    ++step;
  }
  const double select_time = median(select_times), pass_time = median(pass_times), pairs_time = median(pairs_times);
  state.counters["select_us"] = 1e6 * select_time;
  state.counters["pass_us"] = 1e6 * pass_time;
  state.counters["passes"] = select_time / pass_time;
  state.counters["x_nth_element"] = pairs_time / select_time;
  state.counters["x_both"] = (pairs_time + pass_time) / select_time;
}

void normal(Vector& gradient, std::size_t draw) {
  std::mt19937 random(static_cast<unsigned>(draw));
  std::normal_distribution<float> distribution;
  for (float& value : gradient) value = distribution(random);
}

/// Returns a filling that computes each element by a formula.
Filling filled(float (*formula)(std::size_t i, std::size_t n)) {
  return [formula](Vector& gradient, std::size_t) {
    for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = formula(i, gradient.size());
  };
}

const std::vector<Row> rows{
    {.name = "error_feedback", .filling = normal},
    {.name = "momentum", .filling = normal, .velocity = true},
    {.name = "gradient_alone", .filling = normal, .feedback = false},
    {.name = "first_call", .filling = normal, .carried = false, .threshold = false},
    {.name = "second_call", .filling = normal, .carried = false},
    {.name = "scale_jumps_by_10^6",
     .filling =
         [](Vector& gradient, std::size_t draw) {
           normal(gradient, draw);
           if (draw % 2 == 1) std::ranges::for_each(gradient, [](float& value) { value *= 1e6f; });
         },
     .carried = false},
    {.name = "all_zero", .filling = filled([](std::size_t, std::size_t) { return 0.f; }), .carried = false},
    {.name = "all_equal", .filling = filled([](std::size_t, std::size_t) { return 1.f; }), .carried = false},
    {.name = "nearly_equal",
     .filling =
         filled([](std::size_t i, std::size_t) { return 1 + static_cast<float>(i * 2654435761u % 251) * 0x1p-23f; }),
     .carried = false,
     .threshold = false},
    {.name = "ascending",
     .filling = filled([](std::size_t i, std::size_t) { return static_cast<float>(i); }),
     .carried = false,
     .threshold = false},
    {.name = "descending",
     .filling = filled([](std::size_t i, std::size_t n) { return static_cast<float>(n - i); }),
     .carried = false,
     .threshold = false},
};

[[maybe_unused]] const bool registered = [] {
  for (const Row& row : rows) {
    auto* const small = benchmark::RegisterBenchmark(row.name.c_str(), selection, row);
    auto* const large = benchmark::RegisterBenchmark(row.name.c_str(), selection, row);
    for (const std::int64_t sparsity : {100, 1000}) {
      small->Args({347'146, sparsity});
      large->Args({1 << 24, sparsity});
    }
    small->Iterations(300)->UseManualTime()->Unit(benchmark::kMicrosecond);
    large->Iterations(21)->UseManualTime()->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace collectives
