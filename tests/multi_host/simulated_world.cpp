// Preloaded into SimGrid's smpimain, under the library and the program that use it: time is the simulation's, and what
// SimGrid's MPI (3.32) does not have is made of what it has.
//
// All ranks are threads of one process of which one runs at a time. The clock stands still while a rank computes and
// moves on when it tests a request, sleeps or communicates; so deadlines, and looks "every millisecond", are meant in
// simulated time, as they must be: a second of simulation may take minutes.
#include <sched.h>
#include <simgrid/engine.h>
#include <smpi/smpi.h>
#include <time.h>

#include <chrono>
#include <memory>

namespace {

struct Found {  // by a matched probe
  MPI_Comm comm;
  int source, tag;
};

timespec now() {
  const double seconds = 1 + simgrid_get_clock();  // a time of 0 means "never" to some
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
/// The others run when this rank tests or waits.
int sched_yield() noexcept { return 0; }

/// SimGrid's waits for the null request for ever.
int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  if (*request != MPI_REQUEST_NULL) return PMPI_Test(request, done, status);
  *done = 1;
  return MPI_SUCCESS;
}

/// SimGrid's leaves a request that never ends.
int MPI_Cancel(MPI_Request* request) {
  const int code = PMPI_Cancel(request);
  *request = MPI_REQUEST_NULL;
  return code;
}

// Nonblocking collectives that are over when they return. SimGrid's own send everything to everybody at once, which it
// takes minutes to simulate.
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
