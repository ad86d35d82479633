// Implementation of Calibration, which measures tuning values on this machine. Tuning values are numbers by which the
// library chooses how to perform a call. To find a value, the calibration performs collectives with several candidate
// values, and measures their times (calibration.hpp).
//
// A protocol is a way in which ranks of one host exchange data. A cut-off is a size of vectors: from this size on, the
// library uses another protocol, or streaming stores in place of normal ones. A sample is a collective that is timed
// with one size of vectors and one tuning. A list holds the samples from which one value is computed: a cut-off or the
// length of chunks. A round times each sample of one list once.
#include "tuning/calibration.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/text.hpp"
#include "communicator/communicator_impl.hpp"
#include "core/tuning.hpp"
#include "tuning/tuning_cache.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

/// Maximum number of rounds whose times are used. One more round comes first, as a warm-up, and its times are not used.
constexpr std::size_t kRounds = 6;
/// Minimum number of undisturbed times per sample and direction. A forward round times its samples in the order of the
/// list, and a backward round in reverse order. A time is undisturbed if no rank lost its core during the sample.
constexpr int kLeastRounds = 2;
/// Duration of all measurements from which kLeastRounds undisturbed times in each direction suffice. Before that, all
/// kRounds rounds are made.
constexpr Microseconds kLong = std::chrono::milliseconds(25);
/// Duration of all measurements after which no sample is timed.
constexpr Microseconds kLongest = std::chrono::milliseconds(100);
/// Minimum ratio of the time with the built-in value to the time with a measured value. If the ratio is smaller, the
/// built-in value stays, because the gain may be noise.
constexpr double kClearly = 1.1;

/// Maximum numbers of bytes tried with the inline protocol. In this protocol, data lie in the cache lines that ranks
/// poll. kLongestInline is for all peers together, kLongestInlineToOne for one peer. Longer vectors are not tried,
/// because they are slower in programs than in the few calls of a calibration.
constexpr std::size_t kLongestInline = 8 << 10;
constexpr std::size_t kLongestInlineToOne = 4 << 10;
/// Values that are tried for chunk_bytes, the length of the pieces that pass through shared memory. Longer chunks are
/// not tried, because chunks must stay in a cache. Memory outside the caches takes several times as long.
constexpr std::size_t kChunks[] = {16 << 10, 32 << 10, 64 << 10, 128 << 10};
constexpr std::size_t kLongestCall = 1 << 20;

/// Returns sizes from `first` to `last`. Each size is `factor` times the previous one.
std::vector<std::size_t> ladder(std::size_t first, std::size_t last, std::size_t factor) {
  std::vector<std::size_t> sizes;
  for (; first <= last; first *= factor) sizes.push_back(first);
  return sizes;
}

/// Returns a tuning in which communication between NUMA domains (ranks with a common cache) costs no additional time.
/// With this tuning, a call is one collective of all ranks through shared memory, which is measured here. Streaming
/// stores are off, because their limit follows from the size of the caches.
TuningParameters on_one_level() {
  TuningParameters tuning;
  tuning.streaming_bytes = Tuning::kNever;
  tuning.domain_us = tuning.domain_us_per_byte = 0;
  return tuning;
}

/// Value that replaces the time of a sample in which a rank lost its core. The real time would only show that the
/// machine is busy.
constexpr double kSpoilt = std::numeric_limits<double>::infinity();

long context_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

/// Maximum number of times that a sample performs its call. The median time is used. Short calls are repeated more
/// often, because a disturbance changes their time more.
constexpr std::size_t kMostRepetitions = 17;
std::size_t repetitions(std::size_t bytes) {
  return bytes <= (4 << 10) ? kMostRepetitions : bytes <= (64 << 10) ? 5 : 1;
}

/// Returns the tuning with which the communicator is made. It reserves enough memory for all candidate values. Memory
/// for messages is small, because measured calls send no messages.
TuningParameters with_everything() {
  TuningParameters tuning;
  tuning.inline_bytes = kLongestInline;
  tuning.chunk_bytes = *std::max_element(std::begin(kChunks), std::end(kChunks));
  tuning.frame_bytes = 64;
  return tuning;
}
TuningParameters with_nothing() {
  TuningParameters tuning;
  tuning.inline_bytes = tuning.frame_bytes = 64;
  tuning.chunk_bytes = 4096;
  return tuning;
}

}  // namespace

Calibration::Calibration(Bootstrap& here, std::chrono::nanoseconds timeout)
    : comm_(make_communicator(here, timeout, with_everything())),
      here_(here),
      timeout_(timeout),
      barrier_ns_(time_barrier()) {}

Communicator Calibration::make_communicator(Bootstrap& here, std::chrono::nanoseconds timeout,
                                            const TuningParameters& tuning) {
  return Communicator(std::make_unique<Communicator::Impl>(here,
                                                           CommunicatorOptions{.backend = "hierarchical",
                                                                               .timeout = timeout,
                                                                               .progress_thread = false,
                                                                               .tuning = tuning,
                                                                               .transport = "shared_memory",
                                                                               .device_buffers = false,
                                                                               .inject = "none"},
                                                           nullptr, Communicator::Impl::Visibility::hidden));
}

/// Moves ranks that share a core to idle cores, except for the first rank on each core. Ranks that wake one another
/// often share a core. The scheduler separates them only after milliseconds. The set of cores on which a rank may run
/// stays as it was.
void Calibration::spread_out() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof allowed, &allowed);
  const auto mine = static_cast<std::uint32_t>(::sched_getcpu());
  std::vector<std::uint32_t> taken(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(std::span(&mine, 1), std::span(taken));
  const auto moves = [&](Rank rank) {
    const auto before = taken.begin() + rank;
    return std::find(taken.begin(), before, *before) != before;
  };
  if (!moves(comm_.rank())) return;
  std::vector<std::uint32_t> free;  // idle cores, the next higher numbers first: they are probably near
  for (std::uint32_t step = 1; step < CPU_SETSIZE; ++step)
    if (const std::uint32_t core = (mine + step) % CPU_SETSIZE;
        CPU_ISSET(core, &allowed) && std::ranges::find(taken, core) == taken.end())
      free.push_back(core);
  if (free.empty()) return;
  std::size_t at = 0;
  for (Rank rank = 0; rank < comm_.rank(); ++rank)
    if (moves(rank)) ++at;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(free[at % free.size()], &one);
  if (::sched_setaffinity(0, sizeof one, &one) != 0 || ::sched_setaffinity(0, sizeof allowed, &allowed) == 0) return;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core)
    CPU_SET(core, &allowed);  // restoring failed because the allowed set has changed meanwhile: allows all cores
  ::sched_setaffinity(0, sizeof allowed, &allowed);
}

/// Returns the nanoseconds of a barrier in the fastest of several runs. Ignores runs in which a rank lost its core.
std::optional<double> Calibration::time_barrier() {
  spread_out();
  constexpr int kRuns = 6, kBarriers = 32;
  constexpr std::chrono::duration<double, std::nano> kLongEnough = std::chrono::milliseconds(5);
  double best = kSpoilt, elapsed = 0;
  const auto began = Clock::now();
  for (int undisturbed = 0; undisturbed < kRuns && elapsed < kLongEnough.count();) {
    const long switches = context_switches();
    const auto start = Clock::now();
    for (int barrier = 0; barrier < kBarriers; ++barrier) comm_.barrier();
    const auto end = Clock::now();
    // All ranks use the maximum over the ranks. Therefore, all stop after the same run.
    std::array<double, 3> run{context_switches() == switches ? 0.0 : 1.0,
                              std::chrono::duration<double, std::nano>(end - start).count() / kBarriers,
                              std::chrono::duration<double, std::nano>(end - began).count()};
    comm_.all_reduce(std::span(run), ReduceOp::max);
    elapsed = run[2];
    if (run[0] == 0)
      ++undisturbed, best = std::min(best, run[1]);
    else
      spread_out();
  }
  return best < kSpoilt ? std::optional(best) : std::nullopt;
}

bool Calibration::told(bool by_rank_0) {
  std::uint8_t said = by_rank_0 ? 1 : 0;
  comm_.broadcast(std::span(&said, 1), 0);
  return said != 0;
}

void Calibration::ask_everything() {
  const auto ranks = static_cast<std::size_t>(comm_.size());

  ask("streamed_staging_bytes", &TuningParameters::streamed_staging_bytes, true, 1, ladder(4 << 10, 256 << 10, 4),
      {Collective::all_reduce, Collective::all_gather});
  const auto others = static_cast<double>(ranks - 1);
  ask("inline_bytes", &TuningParameters::inline_bytes, false, others,
      ladder(256, std::clamp<std::size_t>(kLongestInline / (ranks - 1), 512, kLongestInlineToOne), 2),
      {Collective::reduce_scatter, Collective::broadcast});
  if (ranks == 2)
    ask("one_shot_bytes", &TuningParameters::one_shot_bytes, false, 1, ladder(16 << 10, kLongestCall, 4),
        {Collective::all_reduce});
  else
    ask("one_shot_bytes_of_many", &TuningParameters::one_shot_bytes_of_many, false, static_cast<double>(ranks - 1),
        ladder(2 << 10, 64 << 10, 2), {Collective::all_reduce});
  if (comm_.impl_->resources.context.kernel_copy_allowed) {
    const double of_two = 2.0 / static_cast<double>(ranks);  // the tuning states these values for two ranks
    const std::size_t longest = std::min(128 * ranks << 10, kLongestCall);
    ask("single_copy_bytes", &TuningParameters::single_copy_bytes, true, of_two, ladder(4 * ranks << 10, longest, 2),
        {Collective::all_gather, Collective::broadcast});
    ask("single_copy_reduce_bytes", &TuningParameters::single_copy_reduce_bytes, true, of_two,
        ladder(2 * ranks << 10, longest, 2), {Collective::all_reduce});
  }
  ask_for_chunk();
  for (Sample& sample : samples_) {
    sample.tuning.signal_bytes = signal_bytes();
    comm_.impl_->retune(sample.tuning);
    sample.protocol = comm_.plan(sample.collective, sample.bytes / sizeof(float), DataType::f32).protocol;
  }
  for (auto& direction : times_by_direction_) direction.assign(samples_.size(), {kSpoilt, 0});
}

void Calibration::ask(const char* name, std::size_t TuningParameters::*field, bool from, double scale,
                      std::vector<std::size_t> sizes, std::initializer_list<Collective> calls) {
  cut_offs_.push_back({name, field, from, scale, std::move(sizes), calls.size(), samples_.size()});
  for (const std::size_t bytes : cut_offs_.back().sizes)
    for (const Collective call : calls)
      // With kNever the call uses the protocol for short vectors, with 0 the one for long vectors.
      for (const std::size_t limit : {Tuning::kNever, std::size_t{0}}) {
        Sample sample{call, bytes, on_one_level()};
        if (field != &TuningParameters::inline_bytes) sample.tuning.inline_bytes = 0;
        // The other cut-offs are turned off, because they could select a third protocol.
        sample.tuning.single_copy_bytes = sample.tuning.single_copy_reduce_bytes = Tuning::kNever;
        sample.tuning.*field = limit;
        samples_.push_back(std::move(sample));
      }
}

/// Sets streamed_staging_bytes in all samples except those of the first cut-off, which have measured this value.
void Calibration::ask_the_rest_with(std::size_t streamed_staging_bytes) {
  for (std::size_t i = cut_offs_[1].first_sample; i < samples_.size(); ++i)
    samples_[i].tuning.streamed_staging_bytes = streamed_staging_bytes;
}

void Calibration::ask_for_chunk() {
  first_chunk_sample_ = samples_.size();
  for (const std::size_t bytes : kChunks) {
    Sample sample{Collective::all_reduce, kLongestCall, on_one_level()};
    sample.tuning.chunk_bytes = bytes;
    sample.tuning.single_copy_reduce_bytes = Tuning::kNever;
    samples_.push_back(std::move(sample));
  }
}

/// Returns the microseconds of a call. Returns kSpoilt if a rank lost its core. Returns nothing if the time is up.
std::optional<double> Calibration::time_of(const Sample& sample) {
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t part = sample.bytes / sizeof(float) / ranks;
  const bool by_part = sample.collective == Collective::all_gather || sample.collective == Collective::reduce_scatter;
  const std::size_t count = by_part ? part * ranks : sample.bytes / sizeof(float);
  const std::span from = std::span(input_).first(count), to = std::span(output_).first(count);
  const auto call = [&] {
    switch (sample.collective) {
      case Collective::all_gather: return comm_.all_gather(from.first(part), to);
      case Collective::reduce_scatter: return comm_.reduce_scatter(from, to.first(part));
      case Collective::broadcast: return comm_.broadcast(from, 0);
      default: return comm_.all_reduce(from, to);
    }
  };
  comm_.impl_->retune(sample.tuning);
  const std::size_t times = repetitions(sample.bytes);
  comm_.plan(sample.collective, count, DataType::f32);
  if (times > 1) call();
  // All ranks compute the same time. Therefore, they stop at the same call.
  elapsed_us_ = Microseconds(Clock::now() - began_).count();
  between_->all_reduce(std::span(&elapsed_us_, 1), ReduceOp::max);
  if (elapsed_us_ > kLongest.count()) return std::nullopt;
  const long switches = context_switches();
  std::array<double, kMostRepetitions> took;
  for (std::size_t time = 0; time < times; ++time) {
    between_->barrier();
    const auto start = Clock::now();
    call();
    took[time] = Microseconds(Clock::now() - start).count();
  }
  const auto median = took.begin() + times / 2;
  std::nth_element(took.begin(), median, took.begin() + times);
  return context_switches() == switches ? *median : kSpoilt;
}

void Calibration::measure() {
  between_.emplace(make_communicator(here_, timeout_, with_nothing()));
  ask_everything();
  began_ = Clock::now();
  input_.assign(kLongestCall / sizeof(float), 0);
  output_ = input_;

  // First uses of memory take longer. Every rank therefore first uses all of its memory for the protocols once.
  TuningParameters inline_ones = on_one_level();
  inline_ones.inline_bytes = Tuning::kNever;
  comm_.impl_->retune(inline_ones);
  const auto ranks = static_cast<std::size_t>(comm_.size());
  const std::size_t part = kLongestInline / sizeof(float) / ranks;
  for (std::uint64_t call = 0; call < kCollectivesAhead; ++call)
    comm_.reduce_scatter(std::span(input_).first(part * ranks), std::span(output_).first(part));
  TuningParameters staged_ones = on_one_level();
  staged_ones.inline_bytes = staged_ones.one_shot_bytes = staged_ones.one_shot_bytes_of_many = 0;
  staged_ones.single_copy_reduce_bytes = Tuning::kNever;
  comm_.impl_->retune(staged_ones);
  for (std::size_t staged = 0; staged < comm_.impl_->resources.context.arena->staging_bytes(); staged += kLongestCall)
    comm_.all_reduce(std::span<const float>(input_), std::span(output_));

  // Cut-offs are measured one after another, so that their calls do not evict one another's data from the caches.
  std::vector<std::size_t> ends;
  for (std::size_t cut = 1; cut < cut_offs_.size(); ++cut) ends.push_back(cut_offs_[cut].first_sample);
  ends.push_back(first_chunk_sample_);
  ends.push_back(samples_.size());
  for (std::size_t first = 0; const std::size_t end : ends) {
    std::vector<double> round(end - first);
    for (std::size_t number = 0; number <= kRounds; ++number) {
      if (elapsed_us_ > kLong.count() && enough(first, end)) break;
      const std::size_t direction = number % std::size(times_by_direction_);
      for (std::size_t i = 0; i < round.size(); ++i) {
        const std::size_t at = direction == 0 ? i : round.size() - 1 - i;
        const auto time = time_of(samples_[first + at]);
        if (!time) return;
        round[at] = *time;
      }
      comm_.all_reduce(std::span(round), ReduceOp::max);  // the time of the slowest rank is used
      if (number == 0) continue;                          // the first round warms the caches and wakes all ranks
      for (std::size_t i = 0; i < round.size(); ++i) {
        Times& times = times_by_direction_[direction][first + i];
        times.best = std::min(times.best, round[i]);
        if (round[i] < kSpoilt) ++times.rounds;
      }
    }
    if (!enough(first, end)) return;
    if (first == 0) ask_the_rest_with(found(cut_offs_[0]));
    first = end;
  }
  const auto barrier_ns = time_barrier();
  stayed_ = barrier_ns && barrier_ns_ && same_distance(*barrier_ns, *barrier_ns_);
}

/// Returns whether the samples [first, end) have been timed in enough rounds in both directions.
bool Calibration::enough(std::size_t first, std::size_t end) const {
  return std::ranges::all_of(times_by_direction_, [&](const auto& direction) {
    return std::all_of(direction.begin() + static_cast<std::ptrdiff_t>(first),
                       direction.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const Times& times) { return times.rounds >= kLeastRounds; });
  });
}

bool Calibration::conclusive() const { return stayed_; }

/// Returns log(time of sample `from` / time of sample `to`), of the direction of rounds in which it is closer to 0.
/// Returns 0 if one direction shows a gain and the other a loss.
double Calibration::gain(std::size_t from, std::size_t to) const {
  const double there = std::log(times_by_direction_[0][from].best / times_by_direction_[0][to].best);
  const double back = std::log(times_by_direction_[1][from].best / times_by_direction_[1][to].best);
  if (there * back <= 0) return 0;
  return std::abs(there) < std::abs(back) ? there : back;
}

std::size_t Calibration::found(const CutOff& cut) const {
  const std::size_t built_in = TuningParameters{}.*cut.field;
  std::vector<double> gains;
  std::size_t now = 0;
  for (std::size_t i = 0; i < cut.sizes.size(); ++i) {
    double sum = 0;
    for (std::size_t call = 0; call < cut.calls; ++call) {
      const std::size_t at = cut.first_sample + (i * cut.calls + call) * 2;
      sum += gain(at, at + 1);
    }
    gains.push_back(sum / static_cast<double>(cut.calls));
    const std::size_t size = cut.scaled(cut.sizes[i]);
    if (cut.from ? size < built_in : size <= built_in) now = i + 1;
  }
  const std::size_t best = best_cut(gains, now);
  if (best == now) return built_in;
  // Sizes above the largest measured one use the protocol that is best at the largest. Sizes below the smallest
  // measured one keep theirs.
  const bool all = best == cut.sizes.size();
  if (cut.from) return all ? Tuning::kNever : cut.scaled(cut.sizes[best]);
  if (all && cut.field != &TuningParameters::inline_bytes) return Tuning::kNever;
  return cut.scaled(best == 0 ? cut.sizes[0] / 2 : cut.sizes[best - 1]);
}

std::size_t Calibration::found_chunk() const {
  const auto* const built_in = std::ranges::find(kChunks, TuningParameters{}.chunk_bytes);
  const auto sample = [&](const std::size_t* chunk) {
    return first_chunk_sample_ + static_cast<std::size_t>(chunk - kChunks);
  };
  const auto* best = built_in;
  double most = std::log(kClearly);
  for (const auto* chunk = std::begin(kChunks); chunk != std::end(kChunks); ++chunk)
    if (const double gained = gain(sample(built_in), sample(chunk)); gained > most) best = chunk, most = gained;
  return *best;
}

/// Returns the number of bytes that are copied in the time of one signal, which tells another rank that data are there.
/// The time of a signal is taken from a barrier, because all ranks of a barrier signal at the same time.
std::size_t Calibration::signal_bytes() const {
  constexpr double kCopiedInANanosecond = 8;  // bytes per nanosecond, copied in and out again
  return static_cast<std::size_t>(barrier_ns_.value_or(0) * kCopiedInANanosecond);
}

nlohmann::json Calibration::tuning() const {
  TuningParameters tuning;
  for (const CutOff& cut : cut_offs_) tuning.*cut.field = found(cut);
  tuning.chunk_bytes = found_chunk();
  tuning.signal_bytes = signal_bytes();
  nlohmann::json numbers = to_json(tuning), measured;
  for (const CutOff& cut : cut_offs_) measured[cut.name] = numbers[cut.name];
  for (const char* const name : {"chunk_bytes", "signal_bytes"}) measured[name] = numbers[name];
  return measured;
}

nlohmann::ordered_json Calibration::measurements() const {
  nlohmann::ordered_json calls;
  for (std::size_t i = 0; i < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    auto& call = calls[fmt::format("{} of {}", to_string(sample.collective), bytes_text(sample.bytes))];
    const std::string chunks = fmt::format(", chunks of {}", bytes_text(sample.tuning.chunk_bytes));
    const bool past_the_caches = sample.bytes >= sample.tuning.streamed_staging_bytes && sample.protocol != "inline" &&
                                 sample.protocol != "single-copy";
    call[fmt::format("{}{}{}", sample.protocol, past_the_caches ? ", past the caches" : "",
                     i < first_chunk_sample_ ? "" : chunks)] =
        std::round(std::min(times_by_direction_[0][i].best, times_by_direction_[1][i].best) * 100) / 100;
  }
  return {{fmt::format("microseconds, fastest of at most {} rounds", kRounds), calls}};
}

std::size_t best_cut(std::span<const double> gain, std::size_t now) {
  std::size_t best = now;
  double most = 0;
  const auto consider = [&](std::size_t cut, double total) {
    const auto sizes = static_cast<double>(cut > now ? cut - now : now - cut);
    if (total > most && total >= sizes * std::log(kClearly)) best = cut, most = total;
  };
  double total = 0;
  for (std::size_t cut = now; cut > 0; --cut) consider(cut - 1, total += gain[cut - 1]);
  total = 0;
  for (std::size_t cut = now; cut < gain.size(); ++cut) consider(cut + 1, total -= gain[cut]);
  return best;
}

}  // namespace collectives
