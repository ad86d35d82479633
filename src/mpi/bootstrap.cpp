// Implementation of MpiBootstrap, with which an MPI program makes a communicator of this library.
//
// Before the ranks are connected, they must exchange their addresses and settings. MpiBootstrap exchanges them by
// collectives of MPI, on a duplicate of the program's MPI communicator. It uses MPI's non-blocking collectives, so that
// a rank can stop waiting at its deadline. MPI cannot cancel a collective. If a collective has not completed at the
// deadline, this file therefore never frees its memory.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/reported_wait.hpp"
#include "base/wait.hpp"
#include "bootstrap/launcher.hpp"
#include "collectives/error.hpp"
#include "collectives/mpi.hpp"
#include "mpi/transport.hpp"

namespace collectives {

struct MpiBootstrap::Shared {
  MPI_Comm comm = MPI_COMM_NULL;
  Rank rank = 0;
  int size = 1;
  // Number of the next wire. It determines the MPI tags of the wire's messages.
  std::atomic<std::size_t> next_context = 0;
  // Error that has ended the exchanges. Every later exchange throws it again.
  std::optional<Error> end;

  ~Shared() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && !end && comm != MPI_COMM_NULL) MPI_Comm_free(&comm);
  }
};

namespace {

/// Maximum number of bytes that one rank contributes to an exchange.
constexpr std::uint64_t kMostContribution = std::uint64_t{64} << 20;

/// Memory that MPI uses during one exchange.
struct Gather {
  std::string mine;
  std::uint64_t my_bytes = 0;
  std::vector<std::uint64_t> bytes;  // Length of each rank's contribution.
  std::vector<int> counts, offsets;  // Lengths and offsets as ints, as MPI requires.
  std::string contributions;
};

constexpr std::string_view kRendezvous = "come to the MPI rendezvous; MPI does not state which one is missing";

/// Blocks until the request has completed. Returns false if the deadline has passed first.
bool wait_for(MPI_Request request, ReportedWait& waiting) {
  Backoff backoff(kLongestSleepBetweenCalls);
  while (true) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done) return true;
    if (waiting.is_over()) return false;
    backoff.wait();
  }
}

/// Returns the first part of the version of MPI: "Open MPI v4.1.4" or "MPICH Version: 4.0.2".
std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string version(text, static_cast<std::size_t>(length));
  version.resize(std::min(version.size(), version.find_first_of(",\n")));
  std::ranges::replace(version, '\t', ' ');
  return version;
}

/// Throws if a launcher has started several processes, but each of them is alone in its MPI_COMM_WORLD. The launcher
/// then belongs to another MPI than the program.
void check_launcher() {
  int world = 0;
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size");
  if (world != 1) return;
  const auto launcher = launcher_of_several();
  if (!launcher) return;
  throw Error(Errc::bootstrap,
              fmt::format("the launcher started {0} processes ({1}={0}), but {2} has a world of 1 rank: start the "
                          "program by the mpirun of the MPI that it was built for",
                          launcher->processes, launcher->variable, mpi_version()));
}

}  // namespace

MpiBootstrap::MpiBootstrap(MPI_Comm comm, std::chrono::nanoseconds timeout) : shared_(std::make_shared<Shared>()) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (!initialized || finalized) {
    throw Error(Errc::bootstrap,
                finalized ? "MpiBootstrap after MPI_Finalize" : "MpiBootstrap before MPI_Init: initialize MPI first");
  }
  if (comm == MPI_COMM_NULL) throw Error(Errc::invalid_argument, "MpiBootstrap(MPI_COMM_NULL)");
  check_launcher();
  check_mpi(MPI_Comm_rank(comm, &shared_->rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm, &shared_->size), "MPI_Comm_size");
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(comm, &shared_->comm, &request), "MPI_Comm_idup");
  ReportedWait waiting(kRendezvous, shared_->rank, Deadline::in(timeout));
  if (!wait_for(request, waiting)) {
    keep_for_mpi(shared_);
    shared_->end = waiting.timeout();
    throw *shared_->end;
  }
  check_mpi(MPI_Comm_set_errhandler(shared_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiBootstrap::~MpiBootstrap() = default;

std::string_view MpiBootstrap::name() const noexcept { return "mpi"; }
Rank MpiBootstrap::rank() const noexcept { return shared_->rank; }
int MpiBootstrap::size() const noexcept { return shared_->size; }

std::vector<std::string> MpiBootstrap::all_gather(std::string_view mine, Deadline deadline) {
  if (shared_->end) throw *shared_->end;
  ReportedWait waiting(kRendezvous, rank(), deadline);
  const auto ranks = static_cast<std::size_t>(size());
  auto gather = std::make_shared<Gather>();
  const auto finish = [&](MPI_Request request) {
    if (wait_for(request, waiting)) return;
    keep_for_mpi(gather);
    shared_->end = waiting.timeout();
    throw *shared_->end;
  };

  gather->mine = mine;
  gather->my_bytes = mine.size();
  gather->bytes.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(&gather->my_bytes, 1, MPI_UINT64_T, gather->bytes.data(), 1, MPI_UINT64_T, shared_->comm,
                           &request),
            "MPI_Iallgather");
  finish(request);

  std::uint64_t total = 0;
  for (const std::uint64_t bytes : gather->bytes) {
    gather->offsets.push_back(static_cast<int>(total));
    gather->counts.push_back(static_cast<int>(bytes));
    if (bytes > kMostContribution || (total += bytes) > INT_MAX) {
      throw Error(Errc::invalid_argument,
                  "all_gather at the MPI rendezvous: more than 64 MiB from one rank, or 2 GiB in all", rank());
    }
  }
  gather->contributions.resize(total);
  check_mpi(MPI_Iallgatherv(gather->mine.data(), static_cast<int>(gather->mine.size()), MPI_BYTE,
                            gather->contributions.data(), gather->counts.data(), gather->offsets.data(), MPI_BYTE,
                            shared_->comm, &request),
            "MPI_Iallgatherv");
  finish(request);

  std::vector<std::string> result;
  for (std::size_t r = 0; r < ranks; ++r) {
    result.push_back(gather->contributions.substr(static_cast<std::size_t>(gather->offsets[r]), gather->bytes[r]));
  }
  return result;
}

WireFactory MpiBootstrap::wire_factory() {
  return {"mpi", false,
          [shared = shared_](const std::vector<Rank>& members, std::size_t context, std::size_t frame_bytes) {
            return std::make_unique<MpiTransport>(std::shared_ptr<const MPI_Comm>(shared, &shared->comm), members,
                                                  context, frame_bytes);
          },
          std::shared_ptr<std::atomic<std::size_t>>(shared_, &shared_->next_context)};
}

}  // namespace collectives
