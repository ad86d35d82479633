// Main function of collectives_bench, which times collectives and verifies their results. Examples:
//
//   mpirun -np 4 collectives_bench all --backend ring,hierarchical,reduce_to_one,auto
//   mpirun -np 2 collectives_bench all_reduce --against mpi
//   collectives_run -n 4 collectives_bench all --type all --op all --max-bytes 64K
//   collectives_bench --bootstrap threads:4
//   collectives_run -n 4 collectives_bench guidelines
//
// Exit status 0 means that every result was right. Exit status 1 means that a result was wrong, a call failed, or a
// report could not be written. Exit status 2 means bad arguments. With the sub-command `guidelines`, exit status 1 also
// means that a guideline is violated, and exit status 3 that the machine is too busy to judge.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <variant>
#include <vector>

#include "collectives/collectives.hpp"
#include "collectives_bench/gpu.hpp"
#include "collectives_bench/guidelines_report.hpp"
#include "collectives_bench/guidelines_run.hpp"
#include "collectives_bench/measure.hpp"
#include "collectives_bench/mpi.hpp"
#include "collectives_bench/options.hpp"
#include "collectives_bench/report.hpp"

namespace collectives::bench {
namespace {

constexpr std::chrono::seconds kRefusalTimeout{10};

enum ExitCode : int { success = 0, failure = 1, bad_arguments = 2, busy_machine = 3 };

/// Reason why the benchmark does not run: the text to print, and the exit status.
struct Refusal {
  std::string text;
  ExitCode code;
};
using Order = std::variant<Settings, Refusal>;

Order read_order(int argc, const char* const* argv) {
  try {
    return parse_settings(argc, argv);
  } catch (const BadArguments& error) {
    return Refusal{error.what(), bad_arguments};
  } catch (const HelpWanted& help) {
    return Refusal{help.what(), success};
  }
}

void say(const Refusal& refusal) {
  if (refusal.code == success) {
    std::fputs(refusal.text.c_str(), stdout);
  } else {
    fmt::print(stderr, "collectives_bench: {}\n", refusal.text);
  }
  std::fflush(nullptr);
}

/// Prints the refusal on rank 0. Returns its exit status. The other ranks wait until rank 0 has printed, because some
/// launchers end the job when the first rank ends.
int refuse(Bootstrap& bootstrap, const Refusal& refusal) {
  if (bootstrap.rank() == 0) say(refusal);
  bootstrap.all_gather("", Deadline::in(kRefusalTimeout));
  return refusal.code;
}

/// Prints a refusal from before the ranks were connected. First connects the ranks, so that only rank 0 prints. If the
/// ranks cannot connect, every rank prints it.
int refuse_without_bootstrap(MpiSession* mpi, const Refusal& refusal) {
  try {
    const auto bootstrap = mpi != nullptr ? mpi->bootstrap() : bootstrap_from_environment(kRefusalTimeout);
    return refuse(*bootstrap, refusal);
  } catch (const Error&) {
    say(refusal);
    return refusal.code;
  }
}

/// Checks the settings that depend on the number of ranks, and opens the report. All ranks must call it, but only rank
/// 0 checks. Every rank returns the refusal of rank 0, or nothing.
template <class AnyReport>
std::optional<Refusal> check_arguments(Bootstrap& bootstrap, const Settings& settings,
                                       std::optional<AnyReport>& report) {
  std::string complaint;
  if (bootstrap.rank() == 0) {
    try {
      if (settings.root >= bootstrap.size()) {
        throw BadArguments(fmt::format("--root {}; valid: 0 to {}", settings.root, bootstrap.size() - 1));
      }
      if (settings.guidelines) check_guidelines(settings, bootstrap.size());
      report.emplace(settings);
    } catch (const BadArguments& error) {
      complaint = error.what();
    }
  }
  complaint = bootstrap.all_gather(complaint, Deadline::in(std::chrono::minutes(10))).front();
  if (complaint.empty()) return std::nullopt;
  return Refusal{complaint, bad_arguments};
}

/// Collective. Opens this rank's GPU. If any rank has none, every rank returns the reason of the first such rank.
std::optional<Refusal> take_gpu(Bootstrap& bootstrap, std::optional<Gpu>& gpu) {
  std::string missing;
  try {
    gpu.emplace(bootstrap);
  } catch (const std::exception& error) {
    missing = fmt::format("rank {}: {}", bootstrap.rank(), error.what());
  }
  for (const std::string& why : bootstrap.all_gather(missing, Deadline::in(std::chrono::minutes(10))))
    if (!why.empty()) return Refusal{why, bad_arguments};
  return std::nullopt;
}

/// Collective. Makes the communicator. If a variable of the library is invalid on some rank, every rank returns the
/// refusal.
std::optional<Refusal> connect(Bootstrap& bootstrap, const CommunicatorOptions& options,
                               std::optional<Communicator>& communicator) {
  try {
    communicator.emplace(bootstrap, options);
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code() != Errc::invalid_argument) throw;
    return Refusal{error.what(), bad_arguments};
  }
}

struct Program {
  int argc;
  const char* const* argv;
  const Settings& settings;
  MpiSession* mpi;  ///< MPI of this process; null without MPI
};

std::string mpi_version(const Program& program) { return program.mpi ? program.mpi->version() : "no MPI"; }

/// Runs the sub-command `guidelines` on one rank. Returns the exit code.
int run_guidelines_on_rank(Bootstrap& bootstrap, const Program& program) {
  std::optional<GuidelineReport> report;  // rank 0 only
  if (const auto refusal = check_arguments(bootstrap, program.settings, report)) return refuse(bootstrap, *refusal);
  std::optional<Communicator> communicator;
  if (const auto refusal = connect(bootstrap, {}, communicator)) return refuse(bootstrap, *refusal);
  const Setting setting =
      report ? describe(*communicator, mpi_version(program), program.argc, program.argv) : Setting();
  const GuidelineOutcome outcome =
      run_guidelines(*communicator, program.settings, report ? &*report : nullptr, setting);
  if (!outcome.busy.empty()) {
    return refuse(bootstrap,
                  {fmt::format("the machine is too busy to judge: {}; --judge-busy judges all the same", outcome.busy),
                   busy_machine});
  }
  return outcome.violated == 0 ? success : failure;
}

/// Runs all measurements on one rank. Returns the exit code.
int run_rank(Bootstrap& bootstrap, const Program& program) {
  const Settings& settings = program.settings;
  std::optional<Report> report;  // rank 0 only
  if (const auto refusal = check_arguments(bootstrap, settings, report)) return refuse(bootstrap, *refusal);

  std::optional<Gpu> gpu;
  if (settings.buffers == Buffers::device)
    if (const auto refusal = take_gpu(bootstrap, gpu)) return refuse(bootstrap, *refusal);
  std::optional<Communicator> communicator;
  CommunicatorOptions options;
  if (gpu) options.device_buffers = true;
  if (const auto refusal = connect(bootstrap, options, communicator)) return refuse(bootstrap, *refusal);
  Communicator& comm = *communicator;
  if (settings.fraction_of_roofline && !comm.topology().one_host()) {
    return refuse(bootstrap,
                  {"--fraction-of-roofline needs all ranks on one host; valid here: without it", bad_arguments});
  }
  const Schedule plan = schedule(settings, comm.size());
  const auto competitor = settings.against_mpi ? program.mpi->competitor() : nullptr;
  Measurement measurement(comm, bootstrap, settings, plan.cases, competitor.get(), gpu ? &*gpu : nullptr);
  if (report) {
    report->begin(describe(comm, mpi_version(program), program.argc, program.argv), measurement.seconds_per_size());
  }
  std::size_t wrong = 0, refused = 0;
  for (std::size_t i = 0; i < plan.cases.size(); ++i) {
    if (report) report->progress(plan.cases[i], i, plan.cases.size());
    const auto result = measurement.run(plan.cases[i]);
    if (!result) {
      ++refused;
      continue;
    }
    wrong += result->wrong.value_or(0);
    if (report) report->add(*result);
  }
  if (report) report->end(plan.skipped, refused);
  return wrong == 0 ? success : failure;
}

/// Calls run_rank() or the run of the sub-command, and prints its failure on the rank that met it. Under MPI a failure
/// aborts the job, because ranks that failed at different places would wait for one another in MPI_Finalize.
int run_and_report(Bootstrap& bootstrap, const Program& program) {
  try {
    return program.settings.guidelines ? run_guidelines_on_rank(bootstrap, program) : run_rank(bootstrap, program);
  } catch (const std::exception& error) {
    fmt::print(stderr, "collectives_bench: rank {}: {}\n", bootstrap.rank(), error.what());
    if (program.mpi != nullptr) program.mpi->abort(failure);
    return failure;
  }
}

int run_threads(const Program& program) {
  auto bootstraps = bootstrap_threads(program.settings.threads);
  std::vector<int> codes(bootstraps.size());
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < bootstraps.size(); ++rank) {
      ranks.emplace_back([&, rank] { codes[rank] = run_and_report(*bootstraps[rank], program); });
    }
  }
  return std::ranges::max(codes);
}

int run(int argc, const char* const* argv) {
  Order order = read_order(argc, argv);
  const Settings* settings = std::get_if<Settings>(&order);
  const BootstrapKind kind = settings != nullptr ? settings->bootstrap : BootstrapKind::automatic;
  std::unique_ptr<MpiSession> mpi;
  if (kind == BootstrapKind::mpi || (kind == BootstrapKind::automatic && under_mpi_launcher())) mpi = start_mpi();

  if (settings != nullptr && kind == BootstrapKind::mpi && !mpi) {
    order = Refusal{"--bootstrap mpi: built without MPI; valid: auto, environment, threads:N", bad_arguments};
  } else if (settings != nullptr && settings->against_mpi && !mpi) {
    order =
        Refusal{"--against mpi needs a build with MPI and a start by mpirun; valid here: no --against", bad_arguments};
  }
  settings = std::get_if<Settings>(&order);
  if (settings != nullptr && kind == BootstrapKind::threads) return run_threads({argc, argv, *settings, nullptr});

  if (settings == nullptr) return refuse_without_bootstrap(mpi.get(), std::get<Refusal>(order));
  std::unique_ptr<Bootstrap> bootstrap;
  try {
    bootstrap = mpi ? mpi->bootstrap() : bootstrap_from_environment();
  } catch (const Error& error) {  // COLLECTIVES_PORT is no port, so the ranks cannot connect
    if (error.code() != Errc::invalid_argument) throw;
    if (error.rank() <= 0) say({error.what(), bad_arguments});
    return bad_arguments;
  }
  return run_and_report(*bootstrap, {argc, argv, *settings, mpi.get()});
}

/// Opens /dev/full for each closed standard stream. Otherwise an arena or a socket could receive the descriptor that
/// the table is written to.
void fill_standard_streams() {
  int descriptor = 0;
  while (descriptor >= 0 && descriptor <= STDERR_FILENO) descriptor = open("/dev/full", O_RDWR | O_CLOEXEC);
  if (descriptor >= 0) close(descriptor);
}

}  // namespace
}  // namespace collectives::bench

int main(int argc, char** argv) {
  using namespace collectives::bench;
  try {
    fill_standard_streams();
    const int code = run(argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    throw std::runtime_error("standard output could not be written");
  } catch (const std::exception& error) {
    fmt::print(stderr, "collectives_bench: {}\n", error.what());
    return failure;
  }
}
