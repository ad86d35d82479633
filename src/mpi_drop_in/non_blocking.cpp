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
  std::shared_ptr<Taken> taken;  // its communicator may be freed before
  MPI_Comm comm;
  Job job;
  Work work = {};
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_SUCCESS;
};

// Never destroyed: MPI may call until the process ends.
std::mutex& mutex = *new std::mutex;
std::vector<Pending*>& pending = *new std::vector<Pending*>;
std::atomic<int> pending_count = 0;

/// What MPI_Wait and its kin say of a request.
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
int cancel(void*, int) noexcept { return MPI_SUCCESS; }  // as for MPI's own: nothing to cancel

/// True when it has finished.
bool move_on(Pending& operation) noexcept {
  try {
    if (!operation.work.test()) return false;
    if (operation.job.finish) operation.job.finish();
  } catch (const std::exception& error) {
    operation.code = report(operation.comm, *operation.taken, error);
  }
  return true;
}

/// Called by MPI in each of its calls, of any thread, and in the waits of the library. What another thread moves on, or
/// this one outside of this call, is left alone.
int move_all_on() noexcept {
  if (pending_count.load(std::memory_order_relaxed) == 0) return 0;
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  int finished = 0;
  for (std::size_t i = 0; i < pending.size();) {
    Pending& operation = *pending[i];
    Taken& taken = *operation.taken;
    if (!taken.try_lock()) {
      ++i;
      continue;
    }
    const bool done = move_on(operation);
    taken.unlock();
    if (!done) {
      ++i;
      continue;
    }
    pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(i));
    pending_count.fetch_sub(1, std::memory_order_relaxed);
    ++finished;
    PMPI_Grequest_complete(operation.request);  // it may be gone after this
  }
  return finished;
}

/// Of libopen-pal: what Open MPI's own parts use.
using Register = int (*)(int (*)() noexcept);
Register opal_progress_register() noexcept {
#ifdef OPEN_MPI
  return reinterpret_cast<Register>(::dlsym(RTLD_DEFAULT, "opal_progress_register"));
#else
  return nullptr;
#endif
}

}  // namespace

bool can_move_on_in_mpi() noexcept { return opal_progress_register() != nullptr; }

MPI_Request begin(Taken& taken, MPI_Comm comm, Job job) {
  static const bool registered = opal_progress_register()(move_all_on) == 0;
  if (!registered) throw std::runtime_error("Open MPI does not take another part to move on");
  auto operation = std::make_unique<Pending>(Pending{taken.shared_from_this(), comm, std::move(job)});
  {
    const std::lock_guard lock(taken);
    operation->work = operation->job.begin(taken.communicator());
  }
  if (PMPI_Grequest_start(query, free_operation, cancel, operation.get(), &operation->request) != MPI_SUCCESS)
    throw std::runtime_error("MPI_Grequest_start failed");
  const MPI_Request request = operation->request;
  const std::lock_guard lock(mutex);
  pending.push_back(operation.release());
  pending_count.fetch_add(1, std::memory_order_relaxed);
  return request;
}

}  // namespace collectives::drop_in
