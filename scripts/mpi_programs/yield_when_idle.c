// For MPICH: a turn of UCX that finds nothing hands the core on, as Open MPI's mpi_yield_when_idle does. Debian's MPICH
// has no setting for that (MPIR_CVAR_POLLS_BEFORE_YIELD is not looked at where UCX waits), so with more ranks than cores
// it spins through whole slices of time: a tester of ScaLAPACK on 4 ranks and 2 cores takes 32 s instead of 0.3.
// To be preloaded; it comes after the drop-in.
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
