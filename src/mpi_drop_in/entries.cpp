// Entry points of the drop-in, a library that users preload into an MPI program. The drop-in performs collectives of
// the program in place of MPI. An entry point is a function with the name of an MPI function. The dynamic linker finds
// the entry point before the function of MPI.
//
// The process may run another MPI library than the one for which the drop-in was built. In another MPI, a handle, such
// as MPI_Comm, may have another size. An entry point therefore has machine words as parameters. The drop-in is active
// only if the process runs the MPI for which it was built. If the drop-in is active, the entry point converts the words
// to MPI's types. Otherwise it passes the words to MPI unchanged. Price: the conversion takes one or two nanoseconds
// per call.
#include <dlfcn.h>

#include <cstdint>
#include <type_traits>

#include "mpi_drop_in/functions.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {
namespace {

using Word = std::intptr_t;

template <class Argument>
Argument from_word(Word word) noexcept {
  if constexpr (std::is_pointer_v<Argument>)
    return reinterpret_cast<Argument>(word);
  else
    return static_cast<Argument>(word);
}

/// Returns the function of this name in the MPI that the process runs.
void* original(const char* name) noexcept {
  find_mpi();
  return ::dlsym(RTLD_DEFAULT, name);
}

template <class... Arguments, class... Words>
int enter(int (*ours)(Arguments...) noexcept, Words... words) noexcept {
  return ours(from_word<Arguments>(words)...);
}
template <class... Words>
int pass_on(void* original, Words... words) noexcept {
  return reinterpret_cast<int (*)(Words...)>(original)(words...);
}

}  // namespace

#define COLLECTIVES_ENTRY(name, ours, parameters, ...)                                                        \
  extern "C" [[gnu::visibility("default")]] int collectives_##ours parameters noexcept __asm__("MPI_" #name); \
  int collectives_##ours parameters noexcept {                                                                \
    if (active()) return enter(ours, __VA_ARGS__);                                                            \
    static void* const mpi = original("PMPI_" #name);                                                         \
    return pass_on(mpi, __VA_ARGS__);                                                                         \
  }

COLLECTIVES_ENTRY(Allreduce, allreduce, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
COLLECTIVES_ENTRY(Reduce, reduce, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Reduce_scatter, reduce_scatter, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
COLLECTIVES_ENTRY(Reduce_scatter_block, reduce_scatter_block, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c,
                  d, e, f)
COLLECTIVES_ENTRY(Allgather, allgather, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Allgatherv, allgatherv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                  e, f, g, h)
COLLECTIVES_ENTRY(Bcast, bcast, (Word a, Word b, Word c, Word d, Word e), a, b, c, d, e)
COLLECTIVES_ENTRY(Barrier, barrier, (Word a), a)
COLLECTIVES_ENTRY(Alltoall, alltoall, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Alltoallv, alltoallv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b,
                  c, d, e, f, g, h, i)
COLLECTIVES_ENTRY(Gather, gather, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d, e, f, g,
                  h)
COLLECTIVES_ENTRY(Gatherv, gatherv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b, c,
                  d, e, f, g, h, i)
COLLECTIVES_ENTRY(Scatter, scatter, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d, e, f,
                  g, h)
COLLECTIVES_ENTRY(Scatterv, scatterv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b, c,
                  d, e, f, g, h, i)
COLLECTIVES_ENTRY(Scan, scan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
COLLECTIVES_ENTRY(Exscan, exscan, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
COLLECTIVES_ENTRY(Iallreduce, iallreduce, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Ireduce, ireduce, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d, e, f,
                  g, h)
COLLECTIVES_ENTRY(Ireduce_scatter, ireduce_scatter, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c,
                  d, e, f, g)
COLLECTIVES_ENTRY(Ireduce_scatter_block, ireduce_scatter_block,
                  (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Iallgather, iallgather, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d,
                  e, f, g, h)
COLLECTIVES_ENTRY(Iallgatherv, iallgatherv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a,
                  b, c, d, e, f, g, h, i)
COLLECTIVES_ENTRY(Ibcast, ibcast, (Word a, Word b, Word c, Word d, Word e, Word f), a, b, c, d, e, f)
COLLECTIVES_ENTRY(Ibarrier, ibarrier, (Word a, Word b), a, b)
COLLECTIVES_ENTRY(Ialltoall, ialltoall, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h), a, b, c, d, e,
                  f, g, h)
COLLECTIVES_ENTRY(Ialltoallv, ialltoallv,
                  (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j), a, b, c, d, e, f, g,
                  h, i, j)
COLLECTIVES_ENTRY(Igather, igather, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b, c,
                  d, e, f, g, h, i)
COLLECTIVES_ENTRY(Igatherv, igatherv, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j),
                  a, b, c, d, e, f, g, h, i, j)
COLLECTIVES_ENTRY(Iscatter, iscatter, (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i), a, b, c,
                  d, e, f, g, h, i)
COLLECTIVES_ENTRY(Iscatterv, iscatterv,
                  (Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, Word j), a, b, c, d, e, f, g,
                  h, i, j)
COLLECTIVES_ENTRY(Iscan, iscan, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)
COLLECTIVES_ENTRY(Iexscan, iexscan, (Word a, Word b, Word c, Word d, Word e, Word f, Word g), a, b, c, d, e, f, g)

}  // namespace collectives::drop_in

using collectives::drop_in::find_mpi, collectives::drop_in::start;

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  find_mpi();
  const int code = PMPI_Init(argc, argv);
  if (code == MPI_SUCCESS) start();
  return code;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  find_mpi();
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  if (code == MPI_SUCCESS) start();
  return code;
}

}  // extern "C"
