#include "harness.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "bytes.hpp"
#include "collectives_bench_statistics.hpp"

namespace collectives::compare {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;  // buffers start on one, for everybody alike
constexpr Operation kOperations[] = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                     Operation::broadcast};
constexpr double kMicrosecondsPerSecond = 1e6;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

/// Of a barrier, the fastest of a few runs.
template <class Barrier>
double nanoseconds_of(Barrier barrier) {
  constexpr int kRuns = 5, kBarriers = 20;
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kBarriers; ++i) barrier();
    best = std::min(best, std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kBarriers);
  }
  return best;
}

void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

std::string_view to_string(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce: return "all_reduce";
    case Operation::reduce_scatter: return "reduce_scatter";
    case Operation::all_gather: return "all_gather";
    case Operation::broadcast: return "broadcast";
  }
  return "";
}

Mapping::Mapping(int descriptor, std::size_t bytes) : bytes_(round_up(std::max<std::size_t>(bytes, 1), kPage)) {
  const int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const data = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  if (data == MAP_FAILED) fail(fmt::format("no memory for {} bytes", bytes_));
  data_ = static_cast<std::byte*>(data);
}

Mapping::Mapping(Mapping&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

Meeting::Meeting(const std::string& path, int rank, int ranks, bool crowded)
    : path_(path), rank_(rank), ranks_(ranks), crowded_(crowded) {
  const std::size_t bytes = sizeof(Slot) * kMostRanks + sizeof(double) * kMostTimes * static_cast<std::size_t>(ranks);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) fail(path);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) fail(path);  // zeros: nobody has arrived
  file_ = Mapping(file, bytes);
  ::close(file);
}

void Meeting::barrier() {
  slots()[rank_].arrived.store(++round_, std::memory_order_release);
  for (int rank = 0; rank < ranks_; ++rank) wait_for(rank, slots()[rank].arrived, round_);
}

void Meeting::wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal) {
  constexpr int kSpins = 200;  // some microseconds: a library may have threads of its own
  wait_for(rank, word, goal, crowded_ ? 0 : kSpins);
}

/// Until `word` of `rank` has reached the goal; after so many spins the core is given away in between.
void Meeting::wait_for(int rank, const std::atomic<std::uint64_t>& word, std::uint64_t goal, int spins) {
  constexpr int kPollsPerLook = 1000;
  constexpr auto kOwing = std::chrono::milliseconds(1);
  constexpr auto kMissing = std::chrono::minutes(2);
  std::optional<Clock::time_point> start;
  for (int polls = 0; word.load(std::memory_order_acquire) < goal; ++polls) {
    if (polls >= spins) {
      ::sched_yield();
    } else {
      relax();
    }
    if (polls % kPollsPerLook != 0) continue;
    const Clock::time_point now = Clock::now();
    if (!start) start = now;
    if (now - *start > kOwing && progress_) progress_();
    if (now - *start > kMissing)
      throw std::runtime_error(fmt::format("rank {} waits in vain for rank {}", rank_, rank));
  }
}

Clock::time_point Meeting::start_together() {
  constexpr auto kHeadStart = std::chrono::microseconds(1);  // for the word to reach every core
  barrier();
  if (crowded_) return Clock::now();
  // The lowest bit tells this start from the one before, which everybody had read when they came to the barrier.
  const std::uint64_t parity = ++starts_ & 1;
  std::atomic<std::uint64_t>& word = slots()[0].start;
  if (rank_ == 0) {
    const auto when = static_cast<std::uint64_t>((Clock::now() + kHeadStart).time_since_epoch().count());
    word.store(when << 1 | parity, std::memory_order_release);
  }
  std::uint64_t said = word.load(std::memory_order_acquire);
  constexpr auto kMissing = std::chrono::minutes(2);
  const Clock::time_point since = Clock::now();
  for (; (said & 1) != parity; said = word.load(std::memory_order_acquire)) {
    relax();
    if (Clock::now() - since > kMissing)
      throw std::runtime_error(fmt::format("rank {} waits in vain for rank 0", rank_));
  }
  const Clock::time_point start{Clock::duration(static_cast<Clock::rep>(said >> 1))};
  while (Clock::now() < start) {
  }
  return start;
}

double Meeting::distance() {
  barrier();
  const double mine = crowded_ ? distance_of_cores() : nanoseconds_of([this] { barrier(); });
  return std::bit_cast<double>(std::ranges::max(exchange(std::bit_cast<std::uint64_t>(mine))));  // none is negative
}

/// A barrier with one other rank, each on a core of its own.
void Meeting::meet(int other) {
  constexpr int kSpins = 200;
  slots()[rank_].met.store(++met_, std::memory_order_release);
  wait_for(other, slots()[other].met, met_, kSpins);
}

double Meeting::distance_of_cores() {
  constexpr auto kLongerThanThat = std::chrono::milliseconds(2);
  cpu_set_t mine;
  if (ranks_ < 2 || ::sched_getaffinity(0, sizeof mine, &mine) != 0 || CPU_COUNT(&mine) < 2) return 0;
  if (rank_ >= 2) {
    std::this_thread::sleep_for(kLongerThanThat);
    return 0;
  }
  std::size_t core = 0;
  for (int left = rank_; !CPU_ISSET(core, &mine) || left-- > 0;) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ::sched_setaffinity(0, sizeof one, &one);
  meet(1 - rank_);
  const double best = nanoseconds_of([this] { meet(1 - rank_); });
  ::sched_setaffinity(0, sizeof mine, &mine);
  return best;
}

std::vector<std::uint64_t> Meeting::exchange(std::uint64_t word) {
  slots()[rank_].word = word;
  barrier();
  std::vector<std::uint64_t> words;
  for (int rank = 0; rank < ranks_; ++rank) words.push_back(slots()[rank].word);
  barrier();  // all have read before anybody writes again
  return words;
}

std::span<double> Meeting::times(int rank) const noexcept {
  auto* const all = reinterpret_cast<double*>(file_.data() + sizeof(Slot) * kMostRanks);
  return {all + static_cast<std::size_t>(rank) * kMostTimes, kMostTimes};
}

float* Contender::make_buffer(std::size_t count) {
  return reinterpret_cast<float*>(buffers_.emplace_back(-1, count * sizeof(float)).data());
}

namespace {

/// One thing to be timed.
struct Cell {
  Operation operation;
  bool in_place;
  bool back_to_back;
  std::size_t bytes;  ///< of the whole vector, as asked; parts are rounded up to one element
};

struct Arguments {
  std::string meeting, output, contender, role, variant;
  int round = 0;
  std::vector<Operation> operations;
  bool out_of_place = true, in_place = false;
  std::size_t min_bytes = 8, max_bytes = 64U << 20, factor = 4, rotate = 0;
  std::vector<std::size_t> back_to_back;  ///< bytes of all-reduces timed without a barrier in between
  double seconds_per_cell = 0.05, patience = 2;
  double near = 0;  ///< nanoseconds of a barrier while a cell is timed, at most; 0: whatever it takes
  double near_patience = 60;
  bool crowded = false;
};

std::size_t bytes_from(const std::string& option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) throw BadArguments(fmt::format("{} {}: not a number of bytes, such as 8 or 64M", option, text));
  return *bytes;
}

/// Throws BadArguments; CLI::ParseError for what it takes care of itself.
Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("One contender of the comparison, one round. Started by scripts/compare.sh under mpirun.");
  std::vector<std::string> operations, back_to_back;
  std::string min_bytes = "8", max_bytes = "64M", rotate = "0", in_place = "no";
  app.add_option("--meeting", arguments.meeting, "An empty file in which the ranks meet")->required();
  app.add_option("--output", arguments.output, "Append one JSON line per cell to this file")->required();
  app.add_option("--contender", arguments.contender, "Its name in the results")->required();
  app.add_option("--role", arguments.role, "ours, peer, best-setting or bound")->required();
  app.add_option("--variant", arguments.variant, "One of several ways to use the same library");
  app.add_option("--round", arguments.round, "Number of this round in the results");
  app.add_option("--collectives", operations, "Which")->delimiter(',');
  app.add_option("--in-place", in_place, "no, yes or both; broadcast has no other form")
      ->check(CLI::IsMember({"no", "yes", "both"}));
  app.add_option("--min-bytes", min_bytes, "Smallest vector");
  app.add_option("--max-bytes", max_bytes, "Largest vector");
  app.add_option("--factor", arguments.factor, "From one size to the next")->check(CLI::Range(2, 1 << 20));
  app.add_option("--rotate", rotate, "Take buffers in turn from this many bytes");
  app.add_option("--back-to-back", back_to_back, "Also time loops of all-reduces of these sizes")->delimiter(',');
  app.add_option("--seconds-per-cell", arguments.seconds_per_cell, "Timed calls of one cell take about this long");
  app.add_option("--patience", arguments.patience, "Leave out what needs more seconds for its fewest calls");
  app.add_option("--near", arguments.near, "Time cells while a barrier takes at most this many nanoseconds");
  app.add_option("--near-patience", arguments.near_patience, "Seconds to wait for that, in all");
  app.add_flag("--crowded", arguments.crowded, "More ranks than cores: waiting gives the core away");
  app.parse(argc, argv);
  arguments.min_bytes = bytes_from("--min-bytes", min_bytes);
  arguments.max_bytes = bytes_from("--max-bytes", max_bytes);
  arguments.rotate = bytes_from("--rotate", rotate);
  if (arguments.min_bytes < sizeof(float) || arguments.min_bytes > arguments.max_bytes) {
    throw BadArguments(fmt::format("--min-bytes {} --max-bytes {}: no sizes from 4 bytes up", min_bytes, max_bytes));
  }
  for (const std::string& text : back_to_back) arguments.back_to_back.push_back(bytes_from("--back-to-back", text));
  arguments.out_of_place = in_place != "yes";
  arguments.in_place = in_place != "no";
  for (const std::string& name : operations) {
    const auto* const found = std::ranges::find_if(kOperations, [&](Operation o) { return to_string(o) == name; });
    if (found == std::end(kOperations)) {
      throw BadArguments("--collectives " + name + ": known are all_reduce, reduce_scatter, all_gather, broadcast");
    }
    arguments.operations.push_back(*found);
  }
  if (operations.empty()) arguments.operations.assign(std::begin(kOperations), std::end(kOperations));
  return arguments;
}

/// What is to be timed, in sweeps: the cells of a sweep differ in size only and ascend.
std::vector<std::vector<Cell>> sweeps(const Arguments& arguments) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = arguments.min_bytes; bytes < arguments.max_bytes; bytes *= arguments.factor) {
    sizes.push_back(bytes);
  }
  sizes.push_back(arguments.max_bytes);
  std::vector<std::vector<Cell>> result;
  const auto add = [&](Operation operation, bool in_place, bool back_to_back, const std::vector<std::size_t>& bytes) {
    std::vector<Cell>& sweep = result.emplace_back();
    for (const std::size_t each : bytes) sweep.push_back({operation, in_place, back_to_back, each});
  };
  for (const Operation operation : arguments.operations) {
    const bool only_in_place = operation == Operation::broadcast;
    if (arguments.out_of_place && !only_in_place) add(operation, false, false, sizes);
    if (arguments.in_place || only_in_place) add(operation, true, false, sizes);
  }
  add(Operation::all_reduce, false, true, arguments.back_to_back);
  return result;
}

/// Waits for times at which the ranks are near one another, with one patience for all.
class NearRanks {
 public:
  NearRanks(const Arguments& arguments, Meeting& meeting) : arguments_(arguments), meeting_(meeting) {}

  bool are_near(double distance) const { return arguments_.near == 0 || distance <= arguments_.near; }

  /// Returns how far they are in the end. Collective.
  double await() {
    for (;;) {
      const Clock::time_point start = Clock::now();
      const double distance = meeting_.distance();
      if (are_near(distance)) return distance;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (!again(start)) return distance;
    }
  }

  /// Whether there is patience left when what has been done since then was in vain. Collective.
  bool again(Clock::time_point since) {
    lost_ += meeting_.exchange(static_cast<std::uint64_t>(microseconds_since(since))).front();
    return static_cast<double>(lost_) <= arguments_.near_patience * kMicrosecondsPerSecond;
  }

 private:
  const Arguments& arguments_;
  Meeting& meeting_;
  std::uint64_t lost_ = 0;  // microseconds
};

/// A contender, its buffers, and the clock.
class Stopwatch {
 public:
  Stopwatch(const Arguments& arguments, Meeting& meeting, NearRanks& near, Contender& contender,
            std::size_t largest_bytes)
      : arguments_(arguments), meeting_(meeting), near_(near), contender_(contender) {
    // A vector whose parts were rounded up is longer than asked, by less than an element for each rank.
    const std::size_t vector = round_up(largest_bytes + ranks() * sizeof(float), kPage);
    pool_bytes_ = std::max(vector, round_up(arguments.rotate, kPage));
    for (float** pool : {&input_, &output_}) {
      *pool = contender_.make_buffer(pool_bytes_ / sizeof(float));
      std::fill_n(*pool, pool_bytes_ / sizeof(float), 1.0F);  // every page present, none the kernel's page of zeros
    }
  }

  struct Timing {
    double microseconds;    ///< median over the units of the slowest rank's time of a call
    std::size_t calls = 0;  ///< timed
    std::uint64_t wrong;    ///< elements of the first call's result, over all ranks
    double distance;        ///< of the ranks, the larger of that before and that after, nanoseconds
  };

  /// Collective. Empty when the fewest calls would take longer than the patience; `microseconds_per_call` says why.
  std::optional<Timing> time(const Cell& cell, double& microseconds_per_call) {
    constexpr std::size_t kFewestUnits = 5;
    prepare(cell);
    const std::uint64_t wrong = check(cell);
    microseconds_per_call = std::numeric_limits<double>::infinity();
    for (int i = 0; i < 2; ++i) {
      time_units(cell, 1, 1);
      microseconds_per_call = std::min(microseconds_per_call, slowest(1).front());
    }
    if (microseconds_per_call * kFewestUnits > arguments_.patience * kMicrosecondsPerSecond) return std::nullopt;
    const double fit = arguments_.seconds_per_cell * kMicrosecondsPerSecond / std::max(microseconds_per_call, 0.01);
    const auto calls = static_cast<std::size_t>(
        std::clamp(fit, static_cast<double>(kFewestUnits), static_cast<double>(Meeting::kMostTimes)));
    const std::size_t units = cell.back_to_back ? kFewestUnits : calls;
    const std::size_t batch = cell.back_to_back ? calls : 1;
    for (;;) {
      const double before = near_.await();
      const Clock::time_point start = Clock::now();
      time_units(cell, units / 10, batch);  // warm-up
      time_units(cell, units, batch);
      const double median = bench::median(slowest(units));
      const double distance = std::max(before, meeting_.distance());
      if (near_.are_near(distance) || !near_.again(start)) return Timing{median, units * batch, wrong, distance};
    }
  }

 private:
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(meeting_.ranks()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(meeting_.rank()); }

  /// Elements of the whole vector and of a part, and how many such vectors the pools hold.
  void prepare(const Cell& cell) {
    count_ = cell.bytes / sizeof(float);
    if (cell.operation == Operation::reduce_scatter || cell.operation == Operation::all_gather) {
      part_ = std::max<std::size_t>(1, count_ / ranks());
      count_ = part_ * ranks();
    }
    stride_ = round_up(count_ * sizeof(float), kPage) / sizeof(float);
    positions_ = arguments_.rotate == 0 ? 1 : pool_bytes_ / sizeof(float) / stride_;
    position_ = 0;
  }

  /// The next call; returns the start of this rank's result. In place, the whole vector lives in the output pool.
  const float* call(const Cell& cell) {
    const std::size_t offset = position_ * stride_;
    if (++position_ == positions_) position_ = 0;
    float* const out = output_ + offset;
    const float* const in = cell.in_place ? out : input_ + offset;
    switch (cell.operation) {
      case Operation::all_reduce: contender_.all_reduce(in, out, count_); break;
      case Operation::reduce_scatter: return contender_.reduce_scatter(in, out, part_);
      case Operation::all_gather: contender_.all_gather(cell.in_place ? out + rank() * part_ : in, out, part_); break;
      case Operation::broadcast: contender_.broadcast(out, count_); break;
    }
    return out;
  }

  /// What rank `from` contributes at `index`: sums of these are exact.
  static float contribution(std::size_t from, std::size_t index) {
    return static_cast<float>((from + 1) * (1 + index % 7));
  }

  /// Performs one call on known data and counts the wrong elements on all ranks. A reduction in place feeds on its own
  /// result from then on and soon reaches infinity, which costs the arithmetic nothing.
  std::uint64_t check(const Cell& cell) {
    float* const whole = cell.in_place ? output_ : input_;
    std::fill_n(output_, count_, -1.0F);
    const bool contributes = cell.operation != Operation::broadcast || rank() == 0;
    const bool part_only = cell.operation == Operation::all_gather;
    float* const mine = part_only && cell.in_place ? whole + rank() * part_ : whole;
    for (std::size_t i = 0; contributes && i < (part_only ? part_ : count_); ++i) mine[i] = contribution(rank(), i);

    meeting_.barrier();
    const float* const result = call(cell);
    std::uint64_t wrong = 0;
    switch (cell.operation) {
      case Operation::all_reduce: wrong = wrong_sums(result, count_, 0); break;
      case Operation::reduce_scatter: wrong = wrong_sums(result, part_, rank() * part_); break;
      case Operation::broadcast: wrong = wrong_copies(result, count_, 0); break;
      case Operation::all_gather:
        for (std::size_t from = 0; from < ranks(); ++from) wrong += wrong_copies(result + from * part_, part_, from);
        break;
    }
    std::uint64_t all = 0;
    for (const std::uint64_t each : meeting_.exchange(wrong)) all += each;
    return all;
  }

  std::uint64_t wrong_sums(const float* sums, std::size_t count, std::size_t first) const {
    const auto ranks_sum = static_cast<float>(ranks() * (ranks() + 1) / 2);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += sums[i] != ranks_sum * contribution(0, first + i);
    return wrong;
  }

  static std::uint64_t wrong_copies(const float* copies, std::size_t count, std::size_t from) {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += copies[i] != contribution(from, i);
    return wrong;
  }

  /// Leaves this rank's microseconds per call of each unit in the meeting.
  void time_units(const Cell& cell, std::size_t units, std::size_t batch) {
    const std::span<double> times = meeting_.times(meeting_.rank());
    for (std::size_t unit = 0; unit < units; ++unit) {
      const Clock::time_point start = meeting_.start_together();
      for (std::size_t i = 0; i < batch; ++i) call(cell);
      times[unit] = microseconds_since(start) / static_cast<double>(batch);
    }
    meeting_.barrier();
  }

  /// The slowest rank's time of each unit. Collective.
  std::vector<double> slowest(std::size_t units) {
    std::vector<double> result(units, 0);
    for (int rank = 0; rank < meeting_.ranks(); ++rank) {
      for (std::size_t unit = 0; unit < units; ++unit) {
        result[unit] = std::max(result[unit], meeting_.times(rank)[unit]);
      }
    }
    meeting_.barrier();  // all have read before anybody times again
    return result;
  }

  const Arguments& arguments_;
  Meeting& meeting_;
  NearRanks& near_;
  Contender& contender_;
  std::size_t pool_bytes_ = 0;
  float* input_ = nullptr;
  float* output_ = nullptr;
  // Of the cell at hand, in elements.
  std::size_t count_ = 0, part_ = 0, stride_ = 0;
  std::size_t positions_ = 1, position_ = 0;
};

/// Rank and size as Open MPI's mpirun says them, MPICH's, or collectives_run.
std::optional<std::pair<int, int>> place_from_launcher() {
  for (const auto& [rank, size] : {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                                   std::pair("PMI_RANK", "PMI_SIZE"), std::pair("RANK", "WORLD_SIZE")}) {
    if (std::getenv(rank) != nullptr && std::getenv(size) != nullptr) {
      return std::pair(std::atoi(std::getenv(rank)), std::atoi(std::getenv(size)));
    }
  }
  return std::nullopt;
}

/// Appends lines to a file, on rank 0.
class Journal {
 public:
  Journal(const Arguments& arguments, const Meeting& meeting) : arguments_(arguments), meeting_(meeting) {
    if (meeting.rank() != 0) return;
    file_ = std::fopen(arguments.output.c_str(), "a");
    if (file_ == nullptr) fail(arguments.output);
  }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() {
    if (file_ != nullptr) std::fclose(file_);
  }

  void write(const Cell& cell, const nlohmann::json& more) {
    if (file_ == nullptr) return;
    nlohmann::json line = {{"contender", arguments_.contender},
                           {"role", arguments_.role},
                           {"ranks", meeting_.ranks()},
                           {"round", arguments_.round},
                           {"collective", to_string(cell.operation)},
                           {"bytes", cell.bytes},
                           {"in_place", cell.in_place},
                           {"back_to_back", cell.back_to_back}};
    line.update(more);
    fmt::print(file_, "{}\n", line.dump());
    std::fflush(file_);
  }

 private:
  const Arguments& arguments_;
  const Meeting& meeting_;
  std::FILE* file_ = nullptr;
};

void run(const Arguments& arguments, int rank, int ranks, const ContenderFactory& make) {
  Meeting meeting(arguments.meeting, rank, ranks, arguments.crowded);
  NearRanks near(arguments, meeting);
  near.await();  // a library may look around when it begins
  const std::unique_ptr<Contender> contender = make(meeting, arguments.variant);
  meeting.while_waiting([&] { contender->progress(); });
  std::size_t largest = arguments.max_bytes;
  for (const std::size_t bytes : arguments.back_to_back) largest = std::max(largest, bytes);
  Stopwatch stopwatch(arguments, meeting, near, *contender, largest);
  Journal journal(arguments, meeting);
  for (const std::vector<Cell>& sweep : sweeps(arguments)) {
    for (const Cell& cell : sweep) {
      if (!contender->offers(cell.operation, cell.in_place)) break;
      double microseconds_per_call = 0;
      const auto timing = stopwatch.time(cell, microseconds_per_call);
      if (!timing) {  // larger sizes take longer
        journal.write(cell, {{"left_out", fmt::format("from {} bytes up: a call takes {:.2g} s", cell.bytes,
                                                      microseconds_per_call / kMicrosecondsPerSecond)}});
        break;
      }
      journal.write(cell, {{"microseconds", timing->microseconds},
                           {"calls", timing->calls},
                           {"wrong", timing->wrong},
                           {"barrier_ns", timing->distance}});
    }
  }
  meeting.barrier();
}

}  // namespace

int run_contender(int argc, char** argv, const ContenderFactory& make) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nothing is left behind when mpirun is killed
  try {
    const auto place = place_from_launcher();
    if (!place) throw BadArguments("not started by mpirun or collectives_run");
    run(parse_arguments(argc, argv), place->first, place->second, make);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      fmt::print("Started by scripts/compare.sh, which says what to pass.\n");
      return 0;
    }
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  } catch (const BadArguments& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    std::fflush(stderr);
    std::_Exit(3);  // not by way of a library that would wait for the other ranks
  }
}

}  // namespace collectives::compare
