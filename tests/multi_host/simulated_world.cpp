// A library that is preloaded into smpimain, by which the simulator SimGrid runs MPI programs. It replaces the clock by
// the simulated clock. It also implements the MPI functions that SimGrid 3.32 lacks, by those that SimGrid has.
//
// All ranks are threads of one process, and one of them runs at a time. The clock stands still while a rank computes,
// and advances when a rank tests a request, sleeps or communicates. Deadlines and periods are therefore simulated
// times. Real time would not do, because a second of simulation may take minutes.
#include <sched.h>
#include <simgrid/engine.h>
#include <smpi/smpi.h>
#include <time.h>

#include <chrono>
#include <memory>

namespace {

struct Found {  // message that MPI_Improbe has found
  MPI_Comm comm;
  int source, tag;
};

timespec now() {
  const double seconds = 1 + simgrid_get_clock();  // because some code takes a time of 0 for "never"
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

}  // namespace

std::chrono::steady_clock::time_point std::chrono::steady_clock::now() noexcept {
  const timespec time = ::now();
  return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}

extern "C" {

int smpi_nanosleep(const struct timespec* request, struct timespec* rest);
int nanosleep(const struct timespec* request, struct timespec* rest) { return smpi_nanosleep(request, rest); }
/// Returns at once, because other ranks run whenever this rank tests a request or waits.
int sched_yield() noexcept { return 0; }

/// Completes a null request, for which SimGrid's function waits for ever.
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  if (*request != MPI_REQUEST_NULL) return PMPI_Test(request, done, status);
  *done = 1;
  return MPI_SUCCESS;
}

/// Cancels and frees a request, which SimGrid's function leaves incomplete for ever.
int MPI_Cancel(MPI_Request* request) {
  const int code = PMPI_Cancel(request);
  *request = MPI_REQUEST_NULL;
  return code;
}

// Nonblocking collectives that are complete when they return. SimGrid itself sends all data to all ranks at once,
// and that simulation takes minutes.
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* made, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return PMPI_Comm_dup(comm, made);
}
int MPI_Iallgather(const void* mine, int count, MPI_Datatype type, void* all, int each, MPI_Datatype all_type,
                   MPI_Comm comm, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return PMPI_Allgather(mine, count, type, all, each, all_type, comm);
}
int MPI_Iallgatherv(const void* mine, int count, MPI_Datatype type, void* all, const int* counts, const int* offsets,
                    MPI_Datatype all_type, MPI_Comm comm, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return PMPI_Allgatherv(mine, count, type, all, counts, offsets, all_type, comm);
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int* found, MPI_Message* message, MPI_Status* status) {
  const int code = PMPI_Iprobe(source, tag, comm, found, status);
  if (*found != 0) *message = new Found{comm, status->MPI_SOURCE, status->MPI_TAG};
  return code;
}
int MPI_Imrecv(void* data, int count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
  const std::unique_ptr<Found> found(static_cast<Found*>(*message));
  return PMPI_Irecv(data, count, type, found->source, found->tag, found->comm, request);
}
}
