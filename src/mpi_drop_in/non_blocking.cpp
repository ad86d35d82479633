// Non-blocking operations of the drop-in, a library that users preload into an MPI program. The drop-in performs
// collectives of the program in place of MPI.
//
// Each operation is a generalized request of MPI, for which the program can wait like for any other request. This file
// keeps a list of pending operations. The function progress_all() advances all pending operations, and completes the
// requests of operations that have ended. Open MPI calls it whenever it progresses its own operations.
#include "mpi_drop_in/non_blocking.hpp"

#include <dlfcn.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mpi_drop_in/perform.hpp"

namespace collectives::drop_in {
namespace {

struct Pending {
  std::shared_ptr<CommState> state;  // keeps the state valid after the program has freed its communicator
  Job job;
  Work work = {};
  MPI_Request request = MPI_REQUEST_NULL;
  std::exception_ptr error = nullptr;
  int code = MPI_SUCCESS;
};

// Never destroyed, because MPI may call progress_all() until the process ends.
std::mutex& mutex = *new std::mutex;
std::vector<Pending*>& pending = *new std::vector<Pending*>;
std::atomic<int> pending_count = 0;

/// Fills the status that MPI_Wait and similar functions return.
int query(void* state, MPI_Status* status) noexcept {
  const auto& operation = *static_cast<const Pending*>(state);
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return operation.code;
}
int free_operation(void* state) noexcept {
  delete static_cast<Pending*>(state);
  return MPI_SUCCESS;
}
int cancel(void*, int) noexcept { return MPI_SUCCESS; }  // a collective cannot be cancelled, as in MPI

/// Progresses the operation. Returns true if the operation has finished or failed.
bool progress(Pending& operation) noexcept {
  if (!operation.state->try_lock()) return false;  // another thread, or an outer call of this function, progresses it
  bool done = true;
  try {
    done = operation.work.test();
    if (done && operation.job.finish) operation.job.finish();
  } catch (...) {
    operation.error = std::current_exception();
  }
  operation.state->unlock();
  return done;
}

void complete(Pending& operation) noexcept {
  try {
    if (operation.error != nullptr) std::rethrow_exception(operation.error);
  } catch (const std::exception& error) {
    operation.code = report(*operation.state, error);
  }
  PMPI_Grequest_complete(operation.request);  // may free the operation
}

/// Progresses all pending operations. Returns the number of operations that have finished or failed. Open MPI calls
/// this function whenever it progresses its own operations, on any thread. Waits of the library progress MPI, so the
/// function also runs in these waits.
int progress_all() noexcept {
  if (pending_count.load(std::memory_order_relaxed) == 0) return 0;
  std::vector<Pending*> finished;
  {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock.owns_lock()) return 0;
    std::erase_if(pending, [&](Pending* operation) {
      if (!progress(*operation)) return false;
      finished.push_back(operation);
      return true;
    });
    pending_count.store(static_cast<int>(pending.size()), std::memory_order_relaxed);
  }
  // The list must be unlocked here, because an error handler of the program may call MPI.
  for (Pending* operation : finished) complete(*operation);
  return static_cast<int>(finished.size());
}

/// Returns the function of libopen-pal by which parts of Open MPI register for progress. Returns null if there is none.
using Register = int (*)(int (*)() noexcept);
Register opal_progress_register() noexcept {
#ifdef OPEN_MPI
  return reinterpret_cast<Register>(::dlsym(RTLD_DEFAULT, "opal_progress_register"));
#else
  return nullptr;
#endif
}

}  // namespace

bool can_progress_in_mpi() noexcept { return opal_progress_register() != nullptr; }

MPI_Request begin(CommState& state, Job job) {
  static const bool registered = opal_progress_register()(progress_all) == 0;
  if (!registered) throw std::runtime_error("Open MPI does not take another part to move on");
  auto operation = std::make_unique<Pending>(Pending{state.shared_from_this(), std::move(job)});
  {
    const std::lock_guard lock(state);
    operation->work = operation->job.begin(state.communicator());
  }
  if (PMPI_Grequest_start(query, free_operation, cancel, operation.get(), &operation->request) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Grequest_start failed");
  const MPI_Request request = operation->request;
  const std::lock_guard lock(mutex);
  pending.push_back(operation.get());
  operation.release();
  pending_count.store(static_cast<int>(pending.size()), std::memory_order_relaxed);
  return request;
}

}  // namespace collectives::drop_in
