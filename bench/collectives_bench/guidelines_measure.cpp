// Implementation of the measurement of performance guidelines. A cell compares two sides, each a list of calls. This
// file makes the calls of both sides, and times the sides in turn.
#include "collectives_bench/guidelines_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "collectives_bench/calls.hpp"
#include "collectives_bench/stopwatch.hpp"

namespace collectives::bench {

namespace {

/// Fewest and most rounds of a run. With fifteen rounds, the interval of the median leaves out about four at each end.
constexpr std::size_t kFewestRounds = 15, kMostRounds = 31;
constexpr std::size_t kMostPairsPerRound = 64;  // more pairs would hardly make the median of a round more precise

/// Returns the bytes from one of several equal buffers to the next. The gap of a cache line keeps tensors of a group
/// from being adjacent.
std::size_t stride_of(std::size_t bytes) noexcept { return bytes == 0 ? 0 : whole_lines(bytes) + kLineBytes; }

std::byte* first_line(BufferMemory& memory) {
  std::byte* const begin = memory.bytes().data();
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  return begin + (whole_lines(address) - address);
}

/// Returns whether the calls of both plans do the same.
bool are_equal_plans(const Plan& one, const Plan& other) {
  return one.name == other.name && one.protocol == other.protocol && one.zero_copy == other.zero_copy &&
         one.segment == other.segment && one.rounds == other.rounds;
}

}  // namespace

GuidelineMeasurement::GuidelineMeasurement(Communicator& comm, const Settings& settings,
                                           const std::vector<GuidelineCell>& cells)
    : comm_(comm), settings_(settings), ordinary_(make_area(cells, false)), allocated_(make_area(cells, true)) {}

std::optional<GuidelineMeasurement::Area> GuidelineMeasurement::make_area(const std::vector<GuidelineCell>& cells,
                                                                          bool allocated) const {
  Footprint most;
  bool is_used = false;
  for (const GuidelineCell& cell : cells)
    for (const Side* const side : {&cell.left, &cell.right})
      for (const TimedCall& call : *side) {
        if (call.allocated != allocated) continue;
        is_used = true;
        const Footprint one = footprint(call.what, comm_.rank(), comm_.size(), settings_.root);
        most.input = std::max(most.input, (call.set + 1) * stride_of(one.input));
        most.output = std::max(most.output, (call.set + 1) * stride_of(one.output));
      }
  if (!is_used) return std::nullopt;
  const auto memory = [&](std::size_t bytes) {
    bytes += kLineBytes;
    return allocated ? BufferMemory(bytes, comm_) : BufferMemory(bytes);
  };
  return Area{memory(most.input), memory(most.output)};
}

Call GuidelineMeasurement::call_of(const TimedCall& timed) {
  const Case& c = timed.what;
  const Footprint one = footprint(c, comm_.rank(), comm_.size(), settings_.root);
  const auto counts = has_parts(c.operation) ? part_counts(c.operation, c.count, comm_.rank(), comm_.size())
                                             : std::vector<std::size_t>();
  Area& area = timed.allocated ? *allocated_ : *ordinary_;
  Call call = call_on(first_line(area.input) + timed.set * stride_of(one.input),
                      first_line(area.output) + timed.set * stride_of(one.output), c, counts, comm_.rank(),
                      comm_.size(), settings_.root);
  call.counts = {};  // only calls with parts of unequal length use it
  return call;
}

GuidelineMeasurement::Calls GuidelineMeasurement::prepare(const Side& side) {
  Calls calls;
  std::vector<std::pair<Call, Options>> grouped;
  for (const TimedCall& timed : side) {
    const Call call = call_of(timed);
    Options options;
    options.backend = timed.what.backend;
    if (timed.form == Form::blocking) {
      calls.emplace_back([this, call, options] { perform(comm_, call, options); });
    } else if (timed.form == Form::grouped) {
      grouped.emplace_back(call, options);
    } else if (timed.form == Form::persistent) {
      auto made = std::make_shared<PersistentCall>(std::move(make_persistent(comm_, call, options).front()));
      calls.emplace_back([made] {
        made->start();
        made->wait();
      });
    } else {
      calls.emplace_back(
          [to = call.output.data, from = call.input.data, bytes = std::min(call.input.bytes(), call.output.bytes())] {
            if (bytes > 0) std::memcpy(to, from, bytes);
          });
    }
  }
  if (!grouped.empty())
    calls.emplace_back([group = std::make_shared<Group>(comm_), grouped] {
      for (const auto& [call, options] : grouped) add_to(*group, call, options);
      group->run();
    });
  return calls;
}

std::string GuidelineMeasurement::reason_to_leave_out(const GuidelineCell& cell) const {
  const auto plan_of = [&](const TimedCall& timed, std::string_view backend) {
    const Case& c = timed.what;
    Options options;
    options.backend = backend;
    return comm_.plan(collective_of(c.operation), whole_count(c, comm_.size()), c.type, reduce_op(c.op), options);
  };
  try {
    for (const Side* const side : {&cell.left, &cell.right})
      for (const TimedCall& timed : *side) (void)plan_of(timed, timed.what.backend);
    if (cell.what.backend == "auto") return {};
    const TimedCall& forced = cell.right.front();
    const Plan plan = plan_of(forced, cell.what.backend);
    if (are_equal_plans(plan, plan_of(forced, "auto"))) return fmt::format("{}: that of auto", kEqualPlan);
    for (const std::string& earlier : settings_.backends) {
      if (earlier == cell.what.backend) return {};
      try {
        if (are_equal_plans(plan, plan_of(forced, earlier))) return fmt::format("{}: that of {}", kEqualPlan, earlier);
      } catch (const Error& error) {
        if (error.code() != Errc::unsupported) throw;
      }
    }
    return {};
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    return fmt::format("{}: {}", kRefused, error.what());
  }
}

double GuidelineMeasurement::time_of(const Calls& side) {
  comm_.barrier();
  const Stopwatch stopwatch;
  for (const auto& call : side) call();
  return stopwatch.microseconds();
}

double GuidelineMeasurement::warm_up(const Calls& left, const Calls& right) {
  double pair = 0;
  for (std::size_t i = 0; i < settings_.warmup; ++i) {
    const Stopwatch stopwatch;
    time_of(left);
    time_of(right);
    pair = stopwatch.microseconds();
  }
  return pair;
}

GuidelineMeasurement::Rounds GuidelineMeasurement::agree_on_rounds(double pair_us, double seconds) {
  const double fit = std::min(seconds * 1e6 / std::max(pair_us, 0.05), 1e9);
  const std::size_t wanted = settings_.iterations != 0 ? settings_.iterations : static_cast<std::size_t>(fit);
  const std::size_t fewest = settings_.iterations != 0 ? 1 : kFewestRounds;
  const std::size_t rounds = std::clamp(wanted, fewest, kMostRounds);
  const std::size_t most = settings_.iterations != 0 ? wanted : kMostPairsPerRound;
  std::uint64_t agreed[] = {rounds, std::clamp<std::size_t>(wanted / rounds, 1, most)};
  comm_.broadcast(agreed, 0);
  return {agreed[0], agreed[1]};
}

bool GuidelineMeasurement::agree_to_stop(std::size_t rounds, double seconds_used, double seconds) {
  // Time after which a cell has no further rounds, as a multiple of the planned time. A machine may become slower.
  constexpr double kLongest = 2;
  if (settings_.iterations != 0 || rounds < kFewestRounds) return false;
  std::uint8_t stop[] = {static_cast<std::uint8_t>(seconds_used > kLongest * seconds)};
  comm_.broadcast(stop, 0);
  return stop[0] != 0;
}

CellTimes GuidelineMeasurement::run(const GuidelineCell& cell, double seconds) {
  CellTimes result;
  result.left_out = reason_to_leave_out(cell);
  if (!result.left_out.empty()) return result;
  Calls left, right;
  double pair_us = 0;
  try {
    left = prepare(cell.left);
    right = prepare(cell.right);
    pair_us = warm_up(left, right);
  } catch (const Error& error) {  // every rank throws it, before anything is sent
    if (error.code() != Errc::unsupported) throw;
    result.left_out = fmt::format("{}: {}", kRefused, error.what());
    return result;
  }
  const Rounds rounds = agree_on_rounds(pair_us, seconds);
  PairedTimes& times = result.times;
  times.pairs_per_round = rounds.pairs;
  times.left.reserve(rounds.number * rounds.pairs);
  times.right.reserve(rounds.number * rounds.pairs);
  const Stopwatch stopwatch;
  for (std::size_t round = 0; round < rounds.number; ++round) {
    if (agree_to_stop(round, stopwatch.seconds(), seconds)) break;
    time_round(left, right, times);
  }
  comm_.all_reduce(times.left, ReduceOp::max);
  comm_.all_reduce(times.right, ReduceOp::max);
  return result;
}

void GuidelineMeasurement::time_round(const Calls& left, const Calls& right, PairedTimes& times) {
  for (std::size_t i = 0; i < times.pairs_per_round; ++i) {
    const bool left_first = times.left.size() % 2 == 0;
    double left_us = 0;
    if (left_first) left_us = time_of(left);
    times.right.push_back(time_of(right));
    times.left.push_back(left_first ? left_us : time_of(left));
  }
}

std::vector<std::string> plans_of(const Communicator& comm, const Side& side) {
  std::vector<std::string> plans;
  for (std::size_t i = 0; i < side.size(); ++i) {
    if (side[i].form == Form::copy || (i > 0 && are_equal_calls(side[i], side[i - 1]))) continue;
    const Case& c = side[i].what;
    Options options;
    options.backend = c.backend;
    plans.push_back(
        comm.explain(collective_of(c.operation), whole_count(c, comm.size()), c.type, reduce_op(c.op), options));
  }
  return plans;
}

}  // namespace collectives::bench
