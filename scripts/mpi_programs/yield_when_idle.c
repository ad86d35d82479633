// Makes MPICH yield the core when a poll of UCX finds nothing, as Open MPI's mpi_yield_when_idle does. Preload it after
// the drop-in.
//
// Debian's MPICH has no setting for that, because MPIR_CVAR_POLLS_BEFORE_YIELD has no effect where UCX waits. With more
// ranks than cores it spins for whole time slices. A tester of ScaLAPACK on 4 ranks and 2 cores then takes 32 s instead
// of 0.3 s.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void* worker) {
  static unsigned (*progress)(void*);
  if (!progress) progress = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned found = progress(worker);
  if (found == 0) sched_yield();
  return found;
}
