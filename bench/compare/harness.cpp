// Implementation of the harness, which times one library for the comparison of libraries. A contender is a library that
// is timed. A cell is one collective at one size. The command line of the program names the cells.
#include "harness.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "arguments.hpp"
#include "base/json.hpp"
#include "base/safe_file.hpp"
#include "collectives_bench/statistics.hpp"
#include "noise.hpp"

namespace collectives::compare {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;  // alignment of all buffers in bytes: one page
constexpr double kMicrosecondsPerSecond = 1e6;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

bool Contender::offers(Operation operation, bool /*in_place*/) const {
  return std::ranges::find(kUsual, operation) != std::end(kUsual);
}

void Contender::exchange(const Exchange& arguments) {
  throw std::logic_error("this contender has no " + std::string(to_string(arguments.operation)));
}

float* Contender::make_buffer(std::size_t count) {
  return reinterpret_cast<float*>(buffers_.emplace_back(-1, count * sizeof(float)).data());
}

void Contender::select_backend(const std::string& backend) {
  if (!backend.empty()) throw BadArguments("--backends " + backend + ": this contender has but one");
}

namespace {

/// One cell: collective and size of one measurement.
struct Cell {
  Operation operation;
  bool in_place;
  bool back_to_back;
  std::size_t bytes;  ///< requested length of the whole vector, whose parts are rounded up to whole elements
};

/// Returns all cells, grouped into sweeps. The cells of a sweep differ only in size, and are ordered by size. No sweep
/// is empty.
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
    const bool only_in_place = operation == Operation::broadcast, never_in_place = !bench::has_in_place(operation);
    if ((arguments.out_of_place && !only_in_place) || never_in_place) add(operation, false, false, sizes);
    if ((arguments.in_place && !never_in_place) || only_in_place) add(operation, true, false, sizes);
  }
  if (!arguments.back_to_back.empty()) add(Operation::all_reduce, false, true, arguments.back_to_back);
  return result;
}

/// Times one contender on its buffers.
class Stopwatch {
 public:
  Stopwatch(const Arguments& arguments, SyncFile& sync, NoiseFilter& noise, Contender& contender,
            std::size_t largest_bytes)
      : arguments_(arguments), sync_(sync), noise_(noise), contender_(contender) {
    // A vector may be longer than requested. Rounding up adds less than one element per rank. Parts of unequal length
    // may add up to a quarter of the vector.
    const bool unequal = std::ranges::any_of(arguments.operations, bench::has_counts);
    const std::size_t vector =
        round_up(largest_bytes + (unequal ? largest_bytes / 4 : 0) + ranks() * sizeof(float), kPage);
    pool_bytes_ = std::max(vector, round_up(arguments.rotate, kPage));
    for (float** pool : {&input_, &output_}) {
      *pool = contender_.make_buffer(pool_bytes_ / sizeof(float));
      std::fill_n(*pool, pool_bytes_ / sizeof(float), 1.0F);  // touches every page, so that none is the kernel's page
                                                              // of zeros
    }
  }

  /// Result of one backend in one cell.
  struct Timing {
    std::string left_out;         ///< reason for leaving the cell out; empty if timed
    bool too_slow = false;        ///< whether calls take too long; this cell and larger ones are then left out
    std::uint64_t wrong = 0;      ///< wrong elements of the first call's result, over all ranks
    std::vector<double> units;    ///< microseconds of a call on the slowest rank
    std::size_t calls = 0;        ///< number of timed calls
    NoiseFilter::Observed found;  ///< largest disturbance of all turns (noise.hpp)
  };

  /// Collective: all ranks call it. Times the backends that `open` marks, in turns.
  std::vector<Timing> time(const Cell& cell, const std::vector<bool>& open) {
    constexpr std::size_t kTurns = 5;
    prepare(cell);
    std::vector<Timing> timings(arguments_.backends.size());
    std::vector<std::size_t> calls(timings.size());
    for (std::size_t backend = 0; backend < timings.size(); ++backend) {
      if (open[backend]) calls[backend] = try_out(cell, arguments_.backends[backend], timings[backend]);
    }
    const std::size_t turns = timings.size() > 1 ? kTurns : 1;
    for (std::size_t turn = 0; turn < turns; ++turn) {
      for (std::size_t backend = 0; backend < timings.size(); ++backend) {
        if (calls[backend] > 0) take_turn(cell, arguments_.backends[backend], calls[backend], turns, timings[backend]);
      }
    }
    return timings;
  }

 private:
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(sync_.ranks()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(sync_.rank()); }

  static constexpr std::size_t kFewestUnits = 5;

  /// Collective. Performs a first call and checks its result. Returns the number of calls that fit into the time of a
  /// cell, or 0 if the cell is left out.
  std::size_t try_out(const Cell& cell, const std::string& backend, Timing& timing) {
    contender_.select_backend(backend);
    const std::optional<std::uint64_t> wrong = check(cell, backend, timing.left_out);
    if (!wrong) return 0;
    timing.wrong = *wrong;
    double each = std::numeric_limits<double>::infinity();  // microseconds
    for (int i = 0; i < 2; ++i) {
      time_units(cell, 1, 1);
      each = std::min(each, slowest(1).front());
    }
    if (each * kFewestUnits > arguments_.patience * kMicrosecondsPerSecond) {
      timing.too_slow = true;
      timing.left_out =
          fmt::format("from {} bytes up: a call takes {:.2g} s", cell.bytes, each / kMicrosecondsPerSecond);
      return 0;
    }
    const double fit = arguments_.seconds_per_cell * kMicrosecondsPerSecond / std::max(each, 0.01);
    return static_cast<std::size_t>(
        std::clamp(fit, static_cast<double>(kFewestUnits), static_cast<double>(SyncFile::kMostTimes)));
  }

  /// Times the calls of one turn after some warm-up calls, because the previous turn of another backend changed the
  /// caches.
  void take_turn(const Cell& cell, const std::string& backend, std::size_t calls, std::size_t turns, Timing& timing) {
    const std::size_t here = (calls + turns - 1) / turns;
    const std::size_t units = cell.back_to_back ? kFewestUnits : here, batch = cell.back_to_back ? here : 1;
    contender_.select_backend(backend);
    std::vector<double> times;
    const NoiseFilter::Observed found = noise_.measure_quietly([&] {
      time_units(cell, std::max<std::size_t>(units / 10, turns > 1), batch);  // warm-up
      time_units(cell, units, batch);
      times = slowest(units);
    });
    timing.units.insert(timing.units.end(), times.begin(), times.end());
    timing.calls += units * batch;
    timing.found.barrier_ns = std::max(timing.found.barrier_ns, found.barrier_ns);
    timing.found.stolen = std::max(timing.found.stolen, found.stolen);
  }

  /// Sets the elements of the whole vector and of a part, and the number of vectors that the pools hold.
  void prepare(const Cell& cell) {
    count_ = cell.bytes / sizeof(float);
    counts_.clear();
    if (bench::has_parts(cell.operation)) {
      part_ = std::max<std::size_t>(1, count_ / ranks());
      counts_ = bench::part_counts(cell.operation, part_, sync_.rank(), sync_.ranks());
      count_ = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
    }
    stride_ = round_up(count_ * sizeof(float), kPage) / sizeof(float);
    positions_ = arguments_.rotate == 0 ? 1 : pool_bytes_ / sizeof(float) / stride_;
    position_ = 0;
  }

  /// Performs the next call. Returns the start of this rank's result. In place, the output pool holds the whole vector.
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
      default: return perform(cell, in, out);
    }
    return out;
  }

  /// Performs an operation that is not among kUsual. In place, `in` and `out` are the start of the whole vector.
  const float* perform(const Cell& cell, const float* in, float* out) {
    const std::size_t own = counts_.empty() || !cell.in_place ? 0 : first_of_part(cell.operation, rank(), rank());
    if (bench::gathers(cell.operation)) in += own;
    if (bench::scatters(cell.operation)) out += own;
    contender_.exchange(
        {cell.operation, in, out, counts_.empty() ? count_ : part_, counts_, rank(), ranks(), cell.in_place});
    return out;
  }

  /// Returns the first element of the part for rank `to` in the vector of rank `of`.
  std::size_t first_of_part(Operation operation, std::size_t of, std::size_t to) const {
    const auto counts = bench::part_counts(operation, part_, static_cast<Rank>(of), sync_.ranks());
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(to), std::size_t{0});
  }

  /// Returns rank `from`'s contribution at `index`. Sums of contributions are exact.
  static float contribution(std::size_t from, std::size_t index) {
    return static_cast<float>((from + 1) * (1 + index % 7));
  }

  /// Performs one call on known data and returns the number of wrong elements on all ranks. Returns nothing and sets
  /// `refused` if the backend cannot perform it.
  ///
  /// After the check, a timed reduction in place reads its own result. The values soon reach infinity, which does not
  /// change the time.
  std::optional<std::uint64_t> check(const Cell& cell, const std::string& backend, std::string& refused) {
    float* const whole = cell.in_place ? output_ : input_;
    std::fill_n(output_, count_, -1.0F);
    const Collective collective = bench::collective_of(cell.operation);
    const bool from_root = collective == Collective::broadcast || collective == Collective::scatter;
    const bool contributes = !from_root || rank() == 0, part_only = bench::gathers(cell.operation);
    float* const mine = part_only && cell.in_place ? whole + first_of_part(cell.operation, rank(), rank()) : whole;
    for (std::size_t i = 0; contributes && i < (part_only ? counts_[rank()] : count_); ++i)
      mine[i] = contribution(rank(), i);

    sync_.barrier();
    const float* const result = backend.empty() ? call(cell) : call_or_refuse(cell, refused);
    if (result == nullptr) return std::nullopt;
    std::uint64_t all = 0;
    for (const std::uint64_t each : sync_.exchange(wrong_results(cell, result))) all += each;
    return all;
  }

  /// Returns the number of wrong elements in this rank's result.
  std::uint64_t wrong_results(const Cell& cell, const float* result) const {
    const Operation operation = cell.operation;
    if (bench::gathers(operation) || bench::collective_of(operation) == Collective::all_to_all) {
      std::uint64_t wrong = 0;
      if (bench::has_root(operation) && rank() != 0) return 0;
      for (std::size_t from = 0; from < ranks(); ++from) {
        const std::size_t first = bench::gathers(operation) ? 0 : first_of_part(operation, from, rank());
        wrong += wrong_copies(result, counts_[from], from, first);
        result += counts_[from];
      }
      return wrong;
    }
    switch (operation) {
      case Operation::all_reduce: return wrong_sums(result, count_, 0, ranks());
      case Operation::reduce_scatter: return wrong_sums(result, part_, rank() * part_, ranks());
      case Operation::scan: return wrong_sums(result, count_, 0, rank() + 1);
      case Operation::exclusive_scan: return rank() == 0 ? 0 : wrong_sums(result, count_, 0, rank());
      case Operation::scatter:
      case Operation::scatter_v: return wrong_copies(result, counts_[rank()], 0, first_of_part(operation, 0, rank()));
      case Operation::sendrecv: return wrong_copies(result, count_, (rank() + ranks() - 1) % ranks());
      case Operation::ping_pong: return (rank() ^ 1U) < ranks() ? wrong_copies(result, count_, rank() ^ 1U) : 0;
      default: return wrong_copies(result, count_, 0);
    }
  }

  /// Returns null if all ranks refuse the call.
  const float* call_or_refuse(const Cell& cell, std::string& refused) {
    const float* result = nullptr;
    try {
      result = call(cell);
    } catch (const std::exception& error) {
      refused = error.what();
    }
    const std::vector<std::uint64_t> done = sync_.exchange(result != nullptr);
    if (std::ranges::count(done, 0U) == 0 || std::ranges::count(done, 1U) == 0) return result;
    throw std::runtime_error(refused.empty() ? "another rank has failed" : refused);
  }

  /// Compares with the sums of the contributions of the first `ranks` ranks.
  static std::uint64_t wrong_sums(const float* sums, std::size_t count, std::size_t first, std::size_t ranks) {
    const auto ranks_sum = static_cast<float>(ranks * (ranks + 1) / 2);
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += sums[i] != ranks_sum * contribution(0, first + i);
    return wrong;
  }

  static std::uint64_t wrong_copies(const float* copies, std::size_t count, std::size_t from, std::size_t first = 0) {
    std::uint64_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) wrong += copies[i] != contribution(from, first + i);
    return wrong;
  }

  /// Times each unit, a loop of `batch` calls. Stores this rank's microseconds per call of each unit in the sync file.
  void time_units(const Cell& cell, std::size_t units, std::size_t batch) {
    const std::span<double> times = sync_.times(sync_.rank());
    const std::size_t legs = cell.operation == Operation::ping_pong ? 2 : 1;  // the time is that of one message
    for (std::size_t unit = 0; unit < units; ++unit) {
      const Clock::time_point start = sync_.start_together();
      for (std::size_t i = 0; i < batch; ++i) call(cell);
      times[unit] = microseconds_since(start) / static_cast<double>(batch * legs);
    }
    sync_.barrier();
  }

  /// Collective. Returns the slowest rank's time of each unit.
  std::vector<double> slowest(std::size_t units) {
    std::vector<double> result(units, 0);
    for (int rank = 0; rank < sync_.ranks(); ++rank) {
      for (std::size_t unit = 0; unit < units; ++unit) {
        result[unit] = std::max(result[unit], sync_.times(rank)[unit]);
      }
    }
    sync_.barrier();  // every rank has read the times before the next ones are written
    return result;
  }

  const Arguments& arguments_;
  SyncFile& sync_;
  NoiseFilter& noise_;
  Contender& contender_;
  std::size_t pool_bytes_ = 0;
  float* input_ = nullptr;
  float* output_ = nullptr;
  // Numbers of elements in the current cell.
  std::size_t count_ = 0, part_ = 0, stride_ = 0;
  std::vector<std::size_t> counts_;
  std::size_t positions_ = 1, position_ = 0;
};

/// Returns rank and size from the variables of Open MPI's mpirun, MPICH's mpirun or collectives_run.
std::optional<std::pair<int, int>> place_from_launcher() {
  for (const auto& [rank, size] : {std::pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
                                   std::pair("PMI_RANK", "PMI_SIZE"), std::pair("RANK", "WORLD_SIZE")}) {
    if (std::getenv(rank) != nullptr && std::getenv(size) != nullptr) {
      return std::pair(std::atoi(std::getenv(rank)), std::atoi(std::getenv(size)));
    }
  }
  return std::nullopt;
}

/// Appends lines to a file on rank 0.
class Journal {
 public:
  Journal(const Arguments& arguments, const SyncFile& sync) : arguments_(arguments), sync_(sync) {
    if (sync.rank() != 0) return;
    Descriptor file = open_to_append(arguments.output.c_str());
    if (!file) throw std::runtime_error(arguments.output + ": " + file_error_text(errno));
    file_ = ::fdopen(file.release(), "a");
    if (file_ == nullptr) fail(arguments.output);
  }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;
  ~Journal() {
    if (file_ != nullptr) std::fclose(file_);
  }

  void write(const Cell& cell, const std::string& backend, const nlohmann::json& more) {
    if (file_ == nullptr) return;
    nlohmann::json line = {{"contender", backend.empty() ? arguments_.contender : arguments_.contender + ":" + backend},
                           {"role", backend.empty() ? arguments_.role : "peer"},
                           {"ranks", sync_.ranks()},
                           {"round", arguments_.round},
                           {"collective", to_string(cell.operation)},
                           {"bytes", cell.bytes},
                           {"in_place", cell.in_place},
                           {"back_to_back", cell.back_to_back}};
    line.update(more);
    fmt::print(file_, "{}\n", json_text(line));
    std::fflush(file_);
  }

 private:
  const Arguments& arguments_;
  const SyncFile& sync_;
  std::FILE* file_ = nullptr;
};

void run(const Arguments& arguments, int rank, int ranks, const ContenderFactory& make) {
  SyncFile sync(arguments.sync_file, rank, ranks, arguments.oversubscribed);
  NoiseFilter noise(arguments.noise, sync);
  noise.wait_until_near();  // a library may probe the machine when it starts
  const std::unique_ptr<Contender> contender = make(sync, arguments.variant);
  sync.while_waiting([&] { contender->progress(); });
  std::size_t largest = arguments.max_bytes;
  for (const std::size_t bytes : arguments.back_to_back) largest = std::max(largest, bytes);
  Stopwatch stopwatch(arguments, sync, noise, *contender, largest);
  Journal journal(arguments, sync);
  for (const std::vector<Cell>& sweep : sweeps(arguments)) {
    std::vector<bool> open(arguments.backends.size(),
                           contender->offers(sweep.front().operation, sweep.front().in_place));
    for (const Cell& cell : sweep) {
      const std::vector<Stopwatch::Timing> timings = stopwatch.time(cell, open);
      for (std::size_t backend = 0; backend < timings.size(); ++backend) {
        const Stopwatch::Timing& timing = timings[backend];
        if (!open[backend]) continue;
        if (!timing.left_out.empty()) {
          open[backend] = !timing.too_slow;
          journal.write(cell, arguments.backends[backend], {{"left_out", timing.left_out}});
          continue;
        }
        journal.write(cell, arguments.backends[backend],
                      {{"microseconds", bench::median(timing.units)},
                       {"calls", timing.calls},
                       {"wrong", timing.wrong},
                       {"barrier_ns", timing.found.barrier_ns},
                       {"stolen", timing.found.stolen}});
      }
    }
  }
  sync.barrier();
}

}  // namespace

int run_contender(int argc, char** argv, const ContenderFactory& make) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // mpirun was killed: leave no process behind
  try {
    const auto place = place_from_launcher();
    if (!place) throw BadArguments("not started by mpirun or collectives_run");
    const std::optional<Arguments> arguments = parse_arguments(argc, argv);
    if (!arguments) {
      fmt::print("Started by scripts/compare.sh, which says what to pass.\n");
      return 0;
    }
    run(*arguments, place->first, place->second, make);
    return 0;
  } catch (const BadArguments& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    std::fflush(stderr);
    std::_Exit(3);  // skips destructors of a library that would wait for other ranks
  }
}

}  // namespace collectives::compare
