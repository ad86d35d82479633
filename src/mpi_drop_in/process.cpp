// Start and end of the drop-in in a process. The drop-in is a library that an MPI program preloads. It performs
// collectives of the program in place of MPI.
//
// The drop-in starts in MPI_Init and ends in MPI_Finalize. MPI progresses its operations only while the process calls
// MPI. Each wait of this library therefore calls progress_mpi(), because peers may wait for an operation of MPI.
#include "mpi_drop_in/process.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "bootstrap/world.hpp"
#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/decision.hpp"
#include "mpi_drop_in/mpi.hpp"
#include "mpi_drop_in/non_blocking.hpp"
#include "mpi_drop_in/statistics.hpp"
#include "mpi_drop_in/types.hpp"
#include "mpi_drop_in/vocabulary.hpp"

namespace collectives::drop_in {

std::atomic<bool> active_in_this_process = false;

namespace {

#ifdef OPEN_MPI
constexpr std::string_view kThisMpi = "Open MPI";
#else
constexpr std::string_view kThisMpi = "MPICH";
#endif

Settings in_force;
int rank_in_world = 0;
MPI_Request never_done = MPI_REQUEST_NULL;  // incomplete until MPI_Finalize, for progress_mpi()

/// Lets MPI progress all operations of this process. It does so by testing a request that never completes. Any thread
/// may call progress_mpi().
///
/// A call of MPI_Iprobe would not suffice, because in this function MPICH examines only the queue of one communicator.
/// A peer in MPI_Win_flush would then wait forever.
void progress_mpi() noexcept {
  int flag = 0;
  PMPI_Request_get_status(never_done, &flag, MPI_STATUS_IGNORE);
}

/// Starts a request that this process completes itself in stop().
void begin_never_done() {
  const auto query = [](void*, MPI_Status* status) {
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
  };
  const auto nothing_to_free = [](void*) { return MPI_SUCCESS; };
  const auto nothing_to_cancel = [](void*, int) { return MPI_SUCCESS; };
  if (PMPI_Grequest_start(query, nothing_to_free, nothing_to_cancel, nullptr, &never_done) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Grequest_start failed");
}
void end_never_done() {
  PMPI_Grequest_complete(never_done);
  PMPI_Wait(&never_done, MPI_STATUS_IGNORE);
}

/// Returns true if the predefined handles of MPI are valid. Open MPI's handles are addresses, which the dynamic linker
/// has looked up when it loaded the drop-in.
bool handles_are_known() {
#ifdef OPEN_MPI
  return MPI_COMM_WORLD != nullptr;
#else
  return true;
#endif
}

/// Returns true if the process runs the MPI for which the drop-in was built. Must be called before any handle or
/// constant of mpi.h is used, because they differ in another MPI. If the result is false, rank 0 logs the reason.
bool the_mpi_it_was_built_for() {
  char text[16384] = {};
  int length = 0;
  PMPI_Get_library_version(text, &length);
  const std::string_view version(text);
  const bool the_one = version.starts_with(kThisMpi);
  if (the_one && handles_are_known()) return true;
  Variables variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::size_t equals = variable.find('=');
    if (equals != variable.npos) variables.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  if (world_of(variables, 1, 0).rank != 0) return false;
  if (the_one)
    log_error(kNoRank, "a module has loaded {}, so nothing is taken over: preload it as well, after the drop-in",
              kThisMpi);
  else
    log_error(kNoRank, "this drop-in is for {}, and the program runs on {}: nothing is taken over", kThisMpi,
              version.substr(0, version.find_first_of(",\n")));
  return false;
}

/// Ends the drop-in. MPI_Finalize first deletes the attributes of MPI_COMM_SELF, which calls this function. All of MPI
/// still works at that time.
int stop(MPI_Comm, int keyval, void*, void*) noexcept {
  active_in_this_process = false;
  drop_all();
  set_wait_hook(nullptr);
  end_never_done();
  end_types();
  if (in_force.stats && rank_in_world == 0) {
    const std::string text = statistics();
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  }
  PMPI_Comm_free_keyval(&keyval);
  return MPI_SUCCESS;
}

/// Agrees on the settings, which rank 0's environment determines. Returns false if that environment is malformed; rank
/// 0 logs the reason.
bool agree() {
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank_in_world);
  // First number: Settings::after. Second number: Settings::coded_from_bytes; negative: sums are not sent as bf16.
  long long agreed[] = {-1, -1};
  try {
    const Environment here = environment();
    in_force.stats = here.mpi_stats.value_or(false);
    agreed[0] = here.mpi_after.value_or(kCallsBeforeIntercept);
    if (here.mpi_wire) agreed[1] = static_cast<long long>(here.mpi_wire_min_bytes.value_or(0));
  } catch (const std::exception& error) {
    if (rank_in_world == 0) log_error(0, "{}: no MPI call is taken over", error.what());
  }
  PMPI_Bcast(agreed, 2, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
  const int here[] = {can_progress_in_mpi() ? 1 : 0, may_pack() ? 0 : 1};
  int everywhere[2] = {};
  PMPI_Allreduce(here, everywhere, 2, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  in_force.non_blocking = everywhere[0] == 1;
  in_force.compares_types = everywhere[1] == 1;
  in_force.after = static_cast<std::size_t>(agreed[0]);
  in_force.coded = agreed[1] >= 0;
  in_force.coded_from_bytes = in_force.coded ? static_cast<std::size_t>(agreed[1]) : 0;
  return agreed[0] >= 0;
}

}  // namespace

const Settings& settings() noexcept { return in_force; }

void find_mpi() noexcept {
  for (const char* library : {"libmpi.so.40", "libmpich.so.12", "libmpi.so.12"})
    if (PMPI_Init == nullptr) ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

void start() noexcept try {
  if (!the_mpi_it_was_built_for() || !agree()) return;
  init_types();
  init_communicators();
  begin_never_done();
  use_words_of_mpi();
  int keyval = MPI_KEYVAL_INVALID;
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, stop, &keyval, nullptr);
  PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr);
  set_wait_hook(progress_mpi);
  active_in_this_process = true;
} catch (const std::exception& error) {  // out of memory
  log_error(rank_in_world, "{}: no MPI call is taken over", error.what());
}

}  // namespace collectives::drop_in
