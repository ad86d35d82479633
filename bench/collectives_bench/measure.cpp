// Implementation of one measurement of collectives_bench. A measurement fills the buffers, calls a collective, verifies
// its result and times further calls. A case is what one measurement times: collective, size, element type, backend and
// so on.
#include "collectives_bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <numeric>

#include "collectives_bench/calls.hpp"
#include "collectives_bench/statistics.hpp"

namespace collectives::bench {

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

/// Returns memory for the inputs or the outputs, large enough for every measurement.
BufferMemory memory_for(std::size_t Footprint::*which, Communicator& comm, const Settings& settings,
                        const std::vector<Case>& cases, Gpu* gpu) {
  std::size_t bytes = 0;
  for (const Case& c : cases) {
    const Footprint one = footprint(c, comm.rank(), comm.size(), settings.root);
    bytes = std::max(bytes, GuardedBuffers::memory_for(one.*which, sets_for(one, settings.rotate)));
  }
  if (gpu != nullptr) return {bytes, comm, *gpu};
  return settings.buffers == Buffers::allocated ? BufferMemory(bytes, comm) : BufferMemory(bytes);
}

std::span<const std::byte> bytes_of(const ConstBuffer& buffer) {
  return {static_cast<const std::byte*>(buffer.data), buffer.bytes()};
}
std::span<std::byte> bytes_of(const Buffer& buffer) { return {static_cast<std::byte*>(buffer.data), buffer.bytes()}; }

/// Returns the plan (algorithm, protocol and codec) of a call as text, such as "hierarchical/inline" or "ring+bf16". If
/// the buffers are in GPU memory, the text names the device path, the way in which they are handled. For example,
/// "host_copy:ring" means that the data are copied to CPU memory, where the backend `ring` performs the call.
std::string plan_text(const Plan& plan, const Compression& compression) {
  std::string text;
  if (plan.device_path != DevicePath::host) text = to_string(plan.device_path);
  if (plan.device_path == DevicePath::kernels || plan.device_path == DevicePath::nccl ||
      plan.device_path == DevicePath::top_k)
    return text;
  if (!text.empty()) text += ':';
  text += plan.name;
  if (!plan.protocol.empty()) text.append("/").append(plan.protocol);
  if (plan.coded) text.append("+").append(compression.codec->name());
  return text;
}

}  // namespace

double clock_cost() {
  constexpr int kReadings = 1000;
  const Clock::time_point start = Clock::now();
  Clock::time_point end;
  for (int i = 0; i < kReadings; ++i) end = Clock::now();
  return microseconds(end - start) / kReadings;
}

Measurement::Measurement(Communicator& comm, Bootstrap& bootstrap, const Settings& settings,
                         const std::vector<Case>& cases, Competitor* competitor, Gpu* gpu)
    : comm_(comm),
      bootstrap_(bootstrap),
      settings_(settings),
      competitor_(competitor),
      gpu_(gpu),
      input_(memory_for(&Footprint::input, comm, settings, cases, gpu)),
      output_(memory_for(&Footprint::output, comm, settings, cases, gpu)),
      seconds_per_size_(settings.seconds_per_size > 0 ? settings.seconds_per_size
                                                      : default_seconds_per_size(cases.size())) {
  if (settings.fraction_of_roofline) roofline_.emplace(comm, bootstrap, settings, cases);
}

Rotation Measurement::prepare(const Case& c) {
  const Footprint one = footprint(c, comm_.rank(), comm_.size(), settings_.root);
  const std::size_t sets = sets_for(one, settings_.rotate);
  std::byte* const input = input_.use(one.input, sets);
  std::byte* const output = output_.use(one.output, sets);
  counts_ = has_parts(c.operation) ? part_counts(c.operation, c.count, comm_.rank(), comm_.size())
                                   : std::vector<std::size_t>();
  const Call first = call_on(input, output, c, counts_, comm_.rank(), comm_.size(), settings_.root);
  return {first, sets, input_.stride(), c.in_place ? input_.stride() : output_.stride()};
}

/// Returns the maximum error that encoding and decoding causes in a value of magnitude 1.
static double coding_unit(const Codec& codec) {
  return codec.name() == "bf16" ? 0x1p-8 : codec.name() == "f16" ? 0x1p-11 : 1.001 / 254;
}

/// Writes this rank's contribution to the input. Writes a constant to the parts of the output that do not overlap the
/// input, so that missing results are found.
void Measurement::fill(const Call& call, const Oracle& oracle, std::size_t shift) {
  std::ranges::fill(bytes_of(call.output), std::byte{0x5a});
  const auto input = bytes_of(call.input);
  oracle.fill(comm_.rank(), shift, {const_cast<std::byte*>(input.data()), input.size()});
}

Call Measurement::on_its_memory(const Call& image) {
  Call call = image;
  if (gpu_ != nullptr) {
    call.input.data = static_cast<const std::byte*>(call.input.data) + input_.away();
    call.output.data = static_cast<std::byte*>(call.output.data) + (call.in_place ? input_ : output_).away();
  }
  return call;
}

void Measurement::perform(const Call& image) {
  if (persistent_.empty()) return bench::perform(comm_, on_its_memory(image), options_);
  for (PersistentCall& call : persistent_[image.set]) {
    call.start();
    call.wait();
  }
}

void Measurement::make_persistent_calls(Rotation& rotation) {
  persistent_.clear();
  if (!settings_.persistent) return;
  persistent_.resize(rotation.sets());
  for (std::size_t set = 0; set < rotation.sets(); ++set) {
    const Call& call = rotation.next();
    persistent_[call.set] = make_persistent(comm_, on_its_memory(call), options_);
  }
}

void Measurement::send() {
  input_.send();
  output_.send();
}
void Measurement::fetch() {
  input_.fetch();
  output_.fetch();
}
void Measurement::perform_once(const Call& call) {
  send();
  perform(call);
  fetch();
}

void Measurement::finish() {
  if (gpu_ != nullptr && options_.stream) gpu_->wait();
}

std::size_t Measurement::wrong_parts(const Call& call, const Oracle& oracle) const {
  const auto output = std::span<const std::byte>(bytes_of(call.output));
  const bool exchanges = collective_of(call.operation) == Collective::all_to_all;
  std::size_t wrong = 0, at = 0;
  for (Rank rank = 0; rank < comm_.size() && at < output.size(); ++rank) {
    const std::size_t bytes = call.counts[static_cast<std::size_t>(rank)] * size_of(call.type);
    // In an all-to-all, compares with the part of another rank's input that is for this rank.
    std::size_t first = 0;
    if (exchanges)
      for (Rank r = 0; r < comm_.rank(); ++r)
        first += part_counts(call.operation, call.count, rank, comm_.size())[static_cast<std::size_t>(r)];
    wrong += oracle.wrong_copies(rank, first, output.subspan(at, bytes));
    at += bytes;
  }
  return wrong;
}

std::size_t Measurement::wrong_results(const Call& call, const Oracle& oracle, double more) const {
  const auto output = std::span<const std::byte>(bytes_of(call.output));
  const std::size_t own =
      call.counts.empty() ? 0 : std::accumulate(call.counts.begin(), call.counts.begin() + call.rank, std::size_t{0});
  if (output.empty() || (call.operation == Operation::exclusive_scan && call.rank == 0)) return 0;
  if (gathers(call.operation) || collective_of(call.operation) == Collective::all_to_all)
    return wrong_parts(call, oracle);
  if (is_reduction(call.operation)) return oracle.wrong_reductions(own, output, more);
  if (is_message(call.operation)) return call.peer_from == kNoRank ? 0 : oracle.wrong_copies(call.peer_from, 0, output);
  return call.operation == Operation::barrier ? 0 : oracle.wrong_copies(call.root, own, output);
}

std::uint64_t Measurement::check(const Call& call, const Oracle& oracle, const Compression& compression,
                                 std::uint64_t& wrong) {
  // With a codec, each contribution and each sum is rounded once, so results may differ by `more`. After top-k, which
  // sends only the largest elements, the benchmark can only check that all ranks have equal results.
  const double more = compression.codec != nullptr ? 2.02 * coding_unit(*compression.codec) * comm_.size() : 0;
  const bool comparable = compression.none() || (compression.codec != nullptr && is_reduction(call.operation));
  if (comparable) wrong += wrong_results(call, oracle, more);
  const bool input_is_kept =
      (!call.in_place && compression.density == 0) || (call.operation == Operation::reduce && call.rank != call.root);
  if (input_is_kept) wrong += oracle.wrong_copies(call.rank, 0, bytes_of(call.input));
  wrong += input_.damaged() + output_.damaged();
  return is_equal_on_all_ranks(call.operation) ? hash_bytes(bytes_of(call.output)) : 0;
}

/// Performs the warm-up calls, whose times do not count. From the time of the last one, rank 0 computes the number of
/// timed calls for all ranks.
Measurement::Repetitions Measurement::agree_on_repetitions(Rotation& rotation, bool with_competitor) {
  constexpr double kFewest = 3, kMost = 5000, kMostBackToBack = 100'000;
  constexpr std::size_t kMostLoops = 10, kFewestInLoop = 10;
  double one = 0;
  for (std::size_t i = 0; i < settings_.warmup; ++i) {
    const Clock::time_point start = Clock::now();
    if (with_competitor) {
      comm_.barrier();
      competitor_->perform(rotation.next());
    }
    comm_.barrier();
    perform(rotation.next());
    finish();
    one = microseconds(Clock::now() - start);
  }
  const double fit = seconds_per_size_ * 1e6 / std::max(one, 0.05);
  const double most = settings_.back_to_back ? kMostBackToBack : kMost;
  std::uint64_t iterations[] = {settings_.iterations != 0 ? settings_.iterations
                                                          : static_cast<std::uint64_t>(std::clamp(fit, kFewest, most))};
  comm_.broadcast(iterations, 0);
  if (!settings_.back_to_back) return {iterations[0], 1};
  const std::size_t loops = std::clamp<std::size_t>(iterations[0] / kFewestInLoop, 1, kMostLoops);
  return {loops, iterations[0] / loops};
}

template <class PerformNext>
void Measurement::time_loop(std::size_t calls, std::vector<double>& times, PerformNext&& perform_next) {
  comm_.barrier();
  const Clock::time_point start = Clock::now();
  for (std::size_t i = 0; i < calls; ++i) perform_next();
  finish();
  times.push_back(microseconds(Clock::now() - start) / (static_cast<double>(calls) * legs_));
}

void Measurement::time_calls(Rotation& rotation, Repetitions repetitions, bool with_competitor,
                             std::vector<double>& ours, std::vector<double>& competitor_times) {
  ours.reserve(repetitions.loops);
  competitor_times.reserve(with_competitor ? repetitions.loops : 0);
  const auto time_ours = [&] { time_loop(repetitions.calls, ours, [&] { perform(rotation.next()); }); };
  const auto time_competitor = [&] {
    time_loop(repetitions.calls, competitor_times, [&] { competitor_->perform(rotation.next()); });
  };
  for (std::size_t left = repetitions.loops; left > 0; --left) {
    const bool ours_first = left % 2 == 0;  // our call is the last one of all, so the buffers hold our result
    if (ours_first) time_ours();
    if (with_competitor) time_competitor();
    if (!ours_first) time_ours();
  }
}

/// Measures the bound (roofline.hpp) with both kinds of stores, each half as often as the calls. One untimed run before
/// that warms up code and caches.
Bound Measurement::bound(const Case& c, Repetitions repetitions) {
  roofline_->use(c);
  std::optional<Bound> best;
  for (const Stores stores : {Stores::plain, Stores::non_temporal}) {
    std::vector<double> times;
    times.reserve(repetitions.loops);
    roofline_->move(stores);
    for (std::size_t i = 0; i <= repetitions.loops / 2; ++i) {
      time_loop(repetitions.calls, times, [&] { roofline_->move(stores); });
    }
    const double time = slowest(std::move(times)).time;
    if (!best || time < best->time) best = Bound{time, stores};
  }
  return *best;
}

/// Collective. Reduces every rank's times by max, loop by loop. `local` is empty on all ranks or on none.
Times Measurement::slowest(std::vector<double> local) {
  if (local.empty()) return {};
  comm_.all_reduce(local, ReduceOp::max);
  const double middle = median(local), loops = static_cast<double>(local.size());
  const double mean = std::accumulate(local.begin(), local.end(), 0.0) / loops;
  return {settings_.back_to_back ? mean : middle, middle, percentile(local, 0.99), std::move(local)};
}

/// Collective. Returns the number of wrong elements on all ranks. A rank with other bits than rank 0 adds one.
/// Exchanges the verdicts through the bootstrap, because the collectives themselves are being judged.
std::size_t Measurement::total_wrong(const Verdict& mine, Operation operation) {
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
    if (is_equal_on_all_ranks(operation) && !equal) ++wrong;  // other bits than rank 0
  }
  return wrong;
}

const Oracle& Measurement::oracle(const Case& c, Data data) {
  const bool reduction = is_reduction(c.operation);
  const int reduced = reduced_ranks(c.operation, comm_.rank(), comm_.size());
  if (!oracles_ || oracles_->reduction != reduction || oracles_->reduced != reduced || oracles_->type != c.type ||
      oracles_->op != c.op) {
    const auto op = reduction ? std::optional(reduce_op(c.op)) : std::nullopt;
    const auto make = [&](Data kind) { return Oracle(c.type, op, comm_.size(), kind, settings_.seed, reduced); };
    oracles_ = Oracles{reduction, reduced, c.type, c.op, make(Data::exact), make(Data::random)};
  }
  return data == Data::exact ? oracles_->exact : oracles_->random;
}

void Measurement::choose_options(const Case& c, bool on_gpu) {
  const Compression& compression = c.compression;
  options_ = {};
  options_.backend = c.backend;
  if (settings_.deterministic) options_.deterministic = true;
  if (compression.codec != nullptr) options_.wire = *compression.codec;
  top_k_.reset();
  if (compression.density > 0) {
    top_k_.emplace(TopKOptions{.density = compression.density});
    options_.compressor = &*top_k_;
    options_.name = "vector";
  }
  options_.force = !compression.none() && settings_.force;
  if (on_gpu) options_.stream = gpu_->stream();
}

void Measurement::fill_all_sets(Rotation& rotation, const Oracle& random, bool on_zeros) {
  const bool top_k = top_k_.has_value();
  for (std::size_t set = 0; set < rotation.sets(); ++set) {
    const Call& call = rotation.next();
    fill(call, random, top_k ? 1009 * set : 0);
    if (on_zeros && !top_k) std::memset(call.whole, 0, std::max(call.input.bytes(), call.output.bytes()));
  }
  send();
}

void Measurement::measure_times(const Case& c, Rotation& rotation, Result& result) {
  const bool with_competitor = competitor_ != nullptr && competitor_->has(rotation.current());
  const Repetitions repetitions = agree_on_repetitions(rotation, with_competitor);
  result.iterations = repetitions.loops * repetitions.calls;
  std::vector<double> ours, competitor_times;
  const std::uint64_t sent = comm_.bytes_sent_to_other_hosts();
  time_calls(rotation, repetitions, with_competitor, ours, competitor_times);
  if (!with_competitor) {
    std::uint64_t bytes[] = {(comm_.bytes_sent_to_other_hosts() - sent) / result.iterations};
    comm_.all_reduce(bytes, ReduceOp::max);
    result.wire_bytes = bytes[0];
  }
  if (top_k_) {
    const TopKReport report = top_k_->report("vector");
    if (report.sparse) result.plan = "top_k";
    result.coding_us = report.coding_seconds * 1e6;
  }
  if (roofline_ && result.bytes > 0 && has_roofline(c.operation)) result.bound = bound(c, repetitions);
  result.ours = slowest(std::move(ours));
  if (with_competitor) result.competitor = slowest(std::move(competitor_times));
  result.algbw = algorithm_bandwidth(result.bytes, result.ours.time);
  result.busbw = result.algbw * bus_factor(c.operation, comm_.size());
}

std::optional<std::string> Measurement::plan_of(const Case& c) {
  if (is_message(c.operation)) return "messages";
  try {
    const Collective collective = collective_of(c.operation);
    return plan_text(comm_.plan(collective, whole_count(c, comm_.size()), c.type, reduce_op(c.op), options_),
                     c.compression);
  } catch (const Error& error) {
    if (error.code() == Errc::unsupported) return std::nullopt;
    throw;
  }
}

std::optional<Result> Measurement::run(const Case& c) {
  const bool on_gpu = gpu_ != nullptr && c.operation != Operation::barrier;
  if (on_gpu && !has_roofline(c.operation)) return std::nullopt;  // works on host memory only
  if (c.operation == Operation::ping_pong && comm_.size() < 2) return std::nullopt;
  choose_options(c, on_gpu);
  Result result;
  result.what = c;
  result.bytes = whole_count(c, comm_.size()) * size_of(c.type);
  const std::optional<std::string> plan = plan_of(c);
  if (!plan) return std::nullopt;
  result.plan = *plan;
  if (on_gpu && !settings_.back_to_back) options_.stream.reset();

  Rotation rotation = prepare(c);
  if (has_counts(c.operation)) try {  // a plan is of parts of equal length
      make_persistent(comm_, on_its_memory(rotation.current()), options_);
    } catch (const Error& error) {
      if (error.code() == Errc::unsupported) return std::nullopt;
      throw;
    }
  make_persistent_calls(rotation);
  legs_ = c.operation == Operation::ping_pong ? 2 : 1;
  const Oracle& exact = oracle(c, Data::exact);
  const Oracle& random = oracle(c, Data::random);
  Verdict verdict;
  if (settings_.check && c.compression.none()) {  // compression rounds even small integers
    fill(rotation.current(), exact);
    perform_once(rotation.current());
    verdict.exact_hash = check(rotation.current(), exact, c.compression, verdict.wrong);
  }

  // A call in place reduces its own result, so it is timed on zeros. Every op maps zeros to zeros.
  const bool on_zeros = c.in_place && !is_repeatable_in_place(c.operation);
  fill_all_sets(rotation, random, on_zeros);
  measure_times(c, rotation, result);
  if (settings_.check) {
    if (on_zeros) {
      fill(rotation.current(), random);
      perform_once(rotation.current());
    } else {
      fetch();
    }
    verdict.random_hash = check(rotation.current(), random, c.compression, verdict.wrong);
    result.wrong = total_wrong(verdict, c.operation);
  }
  return result;
}

}  // namespace collectives::bench
