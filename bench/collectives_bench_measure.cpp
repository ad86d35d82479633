#include "collectives_bench_measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

#include "collectives_bench_statistics.hpp"

namespace collectives::bench {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

std::size_t largest(const std::vector<Case>& cases, int ranks) {
  std::size_t bytes = 0;
  for (const Case& c : cases) bytes = std::max(bytes, whole_count(c, ranks) * size_of(c.type));
  return bytes;
}

std::span<const std::byte> bytes_of(const ConstBuffer& buffer) {
  return {static_cast<const std::byte*>(buffer.data), buffer.bytes()};
}
std::span<std::byte> bytes_of(const Buffer& buffer) { return {static_cast<std::byte*>(buffer.data), buffer.bytes()}; }

/// Whether doing it again on its own result changes nothing, so that timed calls in place may keep real data.
bool in_place_is_repeatable(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::broadcast;
}

bool same_on_all_ranks(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::all_gather ||
         collective == Collective::broadcast;
}

}  // namespace

Measurement::Measurement(Communicator& comm, Bootstrap& bootstrap, const Settings& settings,
                         const std::vector<Case>& cases, Rival* rival)
    : comm_(comm),
      bootstrap_(bootstrap),
      settings_(settings),
      rival_(rival),
      input_(largest(cases, comm.size())),
      output_(settings.out_of_place ? largest(cases, comm.size()) : 0),
      seconds_per_size_(settings.seconds_per_size > 0 ? settings.seconds_per_size
                                                      : default_seconds_per_size(cases.size())) {}

/// In place, the whole vector lives in input_ and output_ is empty.
Call Measurement::prepare(const Case& c) {
  const auto ranks = static_cast<std::size_t>(comm_.size()), rank = static_cast<std::size_t>(comm_.rank());
  const std::size_t part = c.count * size_of(c.type), whole = has_parts(c.collective) ? part * ranks : part;
  const bool at_root = comm_.rank() == settings_.root;
  Call call{c.collective,
            c.type,
            reduce_op(c.op),
            settings_.root,
            comm_.rank(),
            c.in_place,
            ConstBuffer(nullptr, 0, c.type),
            Buffer(nullptr, 0, c.type),
            nullptr};
  const auto as_input = [&](std::byte* data, std::size_t bytes) {
    call.input = ConstBuffer(data, bytes / size_of(c.type), c.type);
  };
  const auto as_output = [&](std::byte* data, std::size_t bytes) {
    call.output = Buffer(data, bytes / size_of(c.type), c.type);
  };
  // What each collective reads and writes on this rank, in bytes.
  std::size_t in_bytes = part, out_bytes = part;
  if (c.collective == Collective::reduce_scatter) in_bytes = whole;
  if (c.collective == Collective::all_gather) out_bytes = whole;
  if (c.collective == Collective::broadcast && !at_root) in_bytes = 0;
  if (c.collective == Collective::reduce && !at_root) out_bytes = 0;

  if (c.in_place) {
    std::byte* const vector = input_.use(whole).data();
    output_.use(0);
    call.whole = vector;
    as_input(c.collective == Collective::all_gather ? vector + rank * part : vector, in_bytes);
    as_output(c.collective == Collective::reduce_scatter ? vector + rank * part : vector, out_bytes);
  } else {
    as_input(input_.use(in_bytes).data(), in_bytes);
    as_output(output_.use(out_bytes).data(), out_bytes);
  }
  return call;
}

/// This rank's contribution into the input, something else into the rest of the output.
void Measurement::fill(const Call& call, const Oracle& oracle) {
  std::ranges::fill(bytes_of(call.output), std::byte{0x5a});
  const auto input = bytes_of(call.input);
  oracle.fill(comm_.rank(), 0, {const_cast<std::byte*>(input.data()), input.size()});
}

void Measurement::perform(const Call& call) {
  switch (call.collective) {
    case Collective::all_reduce: comm_.all_reduce(call.input, call.output, call.op, options_); break;
    case Collective::reduce_scatter: comm_.reduce_scatter(call.input, call.output, call.op, options_); break;
    case Collective::all_gather: comm_.all_gather(call.input, call.output, options_); break;
    case Collective::broadcast:
      if (call.in_place) {
        comm_.broadcast(call.output, call.root, options_);
      } else {
        comm_.broadcast(call.input, call.output, call.root, options_);
      }
      break;
    case Collective::reduce: comm_.reduce(call.input, call.output, call.op, call.root, options_); break;
    case Collective::barrier: comm_.barrier(options_); break;
  }
}

std::uint64_t Measurement::check(const Call& call, const Oracle& oracle, std::uint64_t& wrong) {
  const auto output = std::span<const std::byte>(bytes_of(call.output));
  const std::size_t part = call.input.bytes();
  switch (call.collective) {
    case Collective::all_reduce:
    case Collective::reduce: wrong += oracle.wrong_reductions(0, output); break;
    case Collective::reduce_scatter:
      wrong += oracle.wrong_reductions(static_cast<std::size_t>(call.rank) * call.output.count, output);
      break;
    case Collective::all_gather:
      for (Rank rank = 0; rank < comm_.size(); ++rank) {
        wrong += oracle.wrong_copies(rank, 0, output.subspan(static_cast<std::size_t>(rank) * part, part));
      }
      break;
    case Collective::broadcast: wrong += oracle.wrong_copies(call.root, 0, output); break;
    case Collective::barrier: break;
  }
  const bool input_is_kept = !call.in_place || (call.collective == Collective::reduce && call.rank != call.root);
  if (input_is_kept) wrong += oracle.wrong_copies(call.rank, 0, bytes_of(call.input));
  wrong += input_.damaged() + output_.damaged();
  return same_on_all_ranks(call.collective) ? hash_bytes(output) : 0;
}

/// Rank 0 times the last warm-up call and decides for all.
std::size_t Measurement::agree_on_iterations(const Call& call, bool with_rival) {
  constexpr double kFewest = 3, kMost = 5000;
  double one = 0;
  for (std::size_t i = 0; i < settings_.warmup; ++i) {
    const Clock::time_point start = Clock::now();
    if (with_rival) {
      comm_.barrier();
      rival_->perform(call);
    }
    comm_.barrier();
    perform(call);
    one = microseconds(Clock::now() - start);
  }
  const double fit = seconds_per_size_ * 1e6 / std::max(one, 0.05);
  std::uint64_t iterations[] = {
      settings_.iterations != 0 ? settings_.iterations : static_cast<std::uint64_t>(std::clamp(fit, kFewest, kMost))};
  comm_.broadcast(iterations, 0);
  return iterations[0];
}

void Measurement::time_calls(const Call& call, std::size_t iterations, bool with_rival, std::vector<double>& ours,
                             std::vector<double>& rivals) {
  ours.reserve(iterations);
  rivals.reserve(with_rival ? iterations : 0);
  const auto time_batch = [&](std::size_t calls, std::vector<double>& times, auto&& perform_one) {
    comm_.barrier();
    Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < calls; ++i) {
      perform_one();
      const Clock::time_point end = Clock::now();
      times.push_back(microseconds(end - start));
      start = end;
    }
  };
  const auto time_ours = [&](std::size_t calls) { time_batch(calls, ours, [&] { perform(call); }); };
  const auto time_rival = [&](std::size_t calls) { time_batch(calls, rivals, [&] { rival_->perform(call); }); };

  const std::size_t rounds = settings_.back_to_back ? (with_rival ? 2 : 1) : iterations;
  std::size_t left = iterations;
  for (std::size_t round = 0; round < rounds && left > 0; ++round) {
    const std::size_t calls = settings_.back_to_back ? (left + rounds - round - 1) / (rounds - round) : 1;
    const bool ours_first = (rounds - round) % 2 == 0;  // the last word on the buffers is ours
    if (ours_first) time_ours(calls);
    if (with_rival) time_rival(calls);
    if (!ours_first) time_ours(calls);
    left -= calls;
  }
}

/// Collective: reduces every rank's times by max, call by call. `local` is empty on all ranks or none.
Times Measurement::slowest(std::vector<double> local) {
  if (local.empty()) return {};
  local.push_back(std::accumulate(local.begin(), local.end(), 0.0) / static_cast<double>(local.size()));
  comm_.all_reduce(local, ReduceOp::max);
  const double loop = local.back();
  local.pop_back();
  const double middle = median(local);
  return {settings_.back_to_back ? loop : middle, middle, percentile(local, 0.99)};
}

/// Collective, through the bootstrap: a verdict does not travel by what is judged.
std::size_t Measurement::total_wrong(const Verdict& mine, Collective collective) {
  const auto bytes = std::as_bytes(std::span(&mine, 1));
  const auto all = bootstrap_.all_gather({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                         Deadline::in(std::chrono::minutes(10)));
  std::size_t wrong = 0;
  Verdict first;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Verdict verdict;
    std::memcpy(&verdict, all[rank].data(), sizeof verdict);
    if (rank == 0) first = verdict;
    wrong += verdict.wrong;
    const bool equal = verdict.exact_hash == first.exact_hash && verdict.random_hash == first.random_hash;
    if (same_on_all_ranks(collective) && !equal) ++wrong;  // a rank with other bits than rank 0
  }
  return wrong;
}

const Oracle& Measurement::oracle(const Case& c, Data data) {
  const bool reduction = is_reduction(c.collective);
  if (!oracles_ || oracles_->reduction != reduction || oracles_->type != c.type || oracles_->op != c.op) {
    const auto op = reduction ? std::optional(reduce_op(c.op)) : std::nullopt;
    oracles_ = Oracles{reduction, c.type, c.op, Oracle(c.type, op, comm_.size(), Data::exact, settings_.seed),
                       Oracle(c.type, op, comm_.size(), Data::random, settings_.seed)};
  }
  return data == Data::exact ? oracles_->exact : oracles_->random;
}

std::optional<Result> Measurement::run(const Case& c) {
  options_ = {};
  options_.backend = c.backend;
  if (settings_.deterministic) options_.deterministic = true;
  Result result;
  result.what = c;
  result.bytes = whole_count(c, comm_.size()) * size_of(c.type);
  try {
    const Plan plan = comm_.plan(c.collective, whole_count(c, comm_.size()), c.type, reduce_op(c.op), options_);
    result.plan = plan.name;
    if (!plan.protocol.empty()) result.plan.append("/").append(plan.protocol);
  } catch (const Error& error) {
    if (error.code() == Errc::unsupported) return std::nullopt;
    throw;
  }

  const Call call = prepare(c);
  const Oracle& exact = oracle(c, Data::exact);
  const Oracle& random = oracle(c, Data::random);
  Verdict verdict;
  if (settings_.check) {
    fill(call, exact);
    perform(call);
    verdict.exact_hash = check(call, exact, verdict.wrong);
  }

  // A reduction in place feeds on its own result: it is timed on zeros, which every op keeps.
  const bool on_zeros = c.in_place && !in_place_is_repeatable(c.collective);
  fill(call, random);
  if (on_zeros) std::memset(call.whole, 0, std::max(call.input.bytes(), call.output.bytes()));
  const bool with_rival = rival_ != nullptr && rival_->has(call);
  result.iterations = agree_on_iterations(call, with_rival);
  std::vector<double> ours, rivals;
  time_calls(call, result.iterations, with_rival, ours, rivals);
  if (settings_.check) {
    if (on_zeros) {
      fill(call, random);
      perform(call);
    }
    verdict.random_hash = check(call, random, verdict.wrong);
    result.wrong = total_wrong(verdict, c.collective);
  }
  result.ours = slowest(std::move(ours));
  if (with_rival) result.rival = slowest(std::move(rivals));
  result.algbw = algorithm_bandwidth(result.bytes, result.ours.time);
  result.busbw = result.algbw * bus_factor(c.collective, comm_.size());
  return result;
}

}  // namespace collectives::bench
