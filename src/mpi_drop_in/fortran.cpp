// Entry points of the drop-in for Fortran programs. The drop-in is a library that an MPI program preloads. It performs
// collectives of the program in place of MPI.
//
// Open MPI's Fortran functions call the PMPI_ functions of C, which the drop-in does not replace. The drop-in for Open
// MPI therefore defines the Fortran functions itself. Functions of mpif.h and `use mpi` have names like mpi_allreduce_.
// Functions of `use mpi_f08` have names like mpi_allreduce_f08_. All these functions take integers as handles. The last
// argument of the functions of `use mpi_f08` may be absent. The drop-in for MPICH defines only three Fortran functions,
// which belong to `use mpi_f08`. MPICH's other Fortran functions call the MPI_ functions of C, which the drop-in
// replaces.
#include <dlfcn.h>

#include "mpi_drop_in/functions.hpp"
#include "mpi_drop_in/process.hpp"

using Int = const MPI_Fint*;

using namespace collectives::drop_in;

namespace {

void answer(MPI_Fint* error, int code) noexcept {
  if (error != nullptr) *error = code;
}
/// Returns the function that the program would have called without the drop-in. The drop-in calls this function to
/// initialize MPI. While the drop-in is inactive, it also calls this function for every call of the program.
void* next(const char* name) noexcept { return ::dlsym(RTLD_NEXT, name); }
MPI_Comm comm_of(Int comm) noexcept { return PMPI_Comm_f2c(*comm); }

}  // namespace

// Defines the function mpi_NAME. If the drop-in is active, mpi_NAME executes the statements in the last arguments of
// this macro. Otherwise mpi_NAME calls MPI's function of the same name.
#define COLLECTIVES_FORTRAN_AS(name, parameters, arguments, ...)                            \
  extern "C" [[gnu::visibility("default")]] void mpi_##name parameters {                    \
    static auto* const original = reinterpret_cast<void(*) parameters>(next("mpi_" #name)); \
    if (!active()) return original arguments;                                               \
    __VA_ARGS__;                                                                            \
  }
// Defines a function that initializes MPI and then starts the drop-in. It calls MPI's own Fortran function, which may
// do more than the C function.
#define COLLECTIVES_FORTRAN_INIT(name, parameters, arguments)                               \
  extern "C" [[gnu::visibility("default")]] void mpi_##name parameters {                    \
    static auto* const original = reinterpret_cast<void(*) parameters>(next("mpi_" #name)); \
    MPI_Fint code = MPI_SUCCESS;                                                            \
    original arguments;                                                                     \
    if (code == MPI_SUCCESS) start();                                                       \
    answer(error, code);                                                                    \
  }

#ifdef MPICH

COLLECTIVES_FORTRAN_INIT(init_f08_, (MPI_Fint * error), (&code))
COLLECTIVES_FORTRAN_INIT(init_thread_f08_, (Int required, MPI_Fint* provided, MPI_Fint* error),
                         (required, provided, &code))
COLLECTIVES_FORTRAN_AS(barrier_f08_, (Int comm, MPI_Fint* error), (comm, error), answer(error, barrier(comm_of(comm))))

#else

// Variables whose addresses stand for MPI_IN_PLACE and MPI_BOTTOM.
extern "C" [[gnu::weak, gnu::visibility("default")]] MPI_Fint mpi_fortran_in_place_, mpi_fortran_bottom_;

namespace {

template <class Pointer>
Pointer buffer(Pointer address) noexcept {
  if (address == &mpi_fortran_in_place_) return static_cast<Pointer>(MPI_IN_PLACE);
  if (address == &mpi_fortran_bottom_) return static_cast<Pointer>(MPI_BOTTOM);
  return address;
}

void answer(MPI_Fint* error, int code, MPI_Fint* out, MPI_Request request) noexcept {
  if (code == MPI_SUCCESS) *out = PMPI_Request_c2f(request);
  answer(error, code);
}

MPI_Datatype type_of(Int type) noexcept { return PMPI_Type_f2c(*type); }
MPI_Op op_of(Int op) noexcept { return PMPI_Op_f2c(*op); }

}  // namespace

#define COLLECTIVES_FORTRAN(name, parameters, arguments, ...)         \
  COLLECTIVES_FORTRAN_AS(name##_, parameters, arguments, __VA_ARGS__) \
  COLLECTIVES_FORTRAN_AS(name##_f08_, parameters, arguments, __VA_ARGS__)
#define COLLECTIVES_FORTRAN_I(name, parameters, arguments, call)                                                   \
  COLLECTIVES_FORTRAN(i##name, parameters, arguments, MPI_Request begun = MPI_REQUEST_NULL; const int code = call; \
                      answer(error, code, request, begun))

COLLECTIVES_FORTRAN(allreduce,
                    (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* error),
                    (send, receive, count, type, op, comm, error),
                    answer(error,
                           allreduce(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm))))
COLLECTIVES_FORTRAN_I(allreduce,
                      (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* request,
                       MPI_Fint* error),
                      (send, receive, count, type, op, comm, request, error),
                      iallreduce(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm),
                                 &begun))

COLLECTIVES_FORTRAN(reduce,
                    (const void* send, void* receive, Int count, Int type, Int op, Int root, Int comm, MPI_Fint* error),
                    (send, receive, count, type, op, root, comm, error),
                    answer(error, reduce(buffer(send), buffer(receive), *count, type_of(type), op_of(op), *root,
                                         comm_of(comm))))
COLLECTIVES_FORTRAN_I(reduce,
                      (const void* send, void* receive, Int count, Int type, Int op, Int root, Int comm,
                       MPI_Fint* request, MPI_Fint* error),
                      (send, receive, count, type, op, root, comm, request, error),
                      ireduce(buffer(send), buffer(receive), *count, type_of(type), op_of(op), *root, comm_of(comm),
                              &begun))

COLLECTIVES_FORTRAN(reduce_scatter,
                    (const void* send, void* receive, Int counts, Int type, Int op, Int comm, MPI_Fint* error),
                    (send, receive, counts, type, op, comm, error),
                    answer(error, reduce_scatter(buffer(send), buffer(receive), counts, type_of(type), op_of(op),
                                                 comm_of(comm))))
COLLECTIVES_FORTRAN_I(reduce_scatter,
                      (const void* send, void* receive, Int counts, Int type, Int op, Int comm, MPI_Fint* request,
                       MPI_Fint* error),
                      (send, receive, counts, type, op, comm, request, error),
                      ireduce_scatter(buffer(send), buffer(receive), counts, type_of(type), op_of(op), comm_of(comm),
                                      &begun))

COLLECTIVES_FORTRAN(reduce_scatter_block,
                    (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* error),
                    (send, receive, count, type, op, comm, error),
                    answer(error, reduce_scatter_block(buffer(send), buffer(receive), *count, type_of(type), op_of(op),
                                                       comm_of(comm))))
COLLECTIVES_FORTRAN_I(reduce_scatter_block,
                      (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* request,
                       MPI_Fint* error),
                      (send, receive, count, type, op, comm, request, error),
                      ireduce_scatter_block(buffer(send), buffer(receive), *count, type_of(type), op_of(op),
                                            comm_of(comm), &begun))

COLLECTIVES_FORTRAN(allgather,
                    (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int comm,
                     MPI_Fint* error),
                    (send, send_count, send_type, receive, count, type, comm, error),
                    answer(error, allgather(buffer(send), *send_count, type_of(send_type), buffer(receive), *count,
                                            type_of(type), comm_of(comm))))
COLLECTIVES_FORTRAN_I(allgather,
                      (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int comm,
                       MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, count, type, comm, request, error),
                      iallgather(buffer(send), *send_count, type_of(send_type), buffer(receive), *count, type_of(type),
                                 comm_of(comm), &begun))

COLLECTIVES_FORTRAN(allgatherv,
                    (const void* send, Int send_count, Int send_type, void* receive, Int counts, Int places, Int type,
                     Int comm, MPI_Fint* error),
                    (send, send_count, send_type, receive, counts, places, type, comm, error),
                    answer(error, allgatherv(buffer(send), *send_count, type_of(send_type), buffer(receive), counts,
                                             places, type_of(type), comm_of(comm))))
COLLECTIVES_FORTRAN_I(allgatherv,
                      (const void* send, Int send_count, Int send_type, void* receive, Int counts, Int places, Int type,
                       Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, counts, places, type, comm, request, error),
                      iallgatherv(buffer(send), *send_count, type_of(send_type), buffer(receive), counts, places,
                                  type_of(type), comm_of(comm), &begun))

COLLECTIVES_FORTRAN(bcast, (void* data, Int count, Int type, Int root, Int comm, MPI_Fint* error),
                    (data, count, type, root, comm, error),
                    answer(error, bcast(buffer(data), *count, type_of(type), *root, comm_of(comm))))
COLLECTIVES_FORTRAN_I(bcast, (void* data, Int count, Int type, Int root, Int comm, MPI_Fint* request, MPI_Fint* error),
                      (data, count, type, root, comm, request, error),
                      ibcast(buffer(data), *count, type_of(type), *root, comm_of(comm), &begun))

COLLECTIVES_FORTRAN(barrier, (Int comm, MPI_Fint* error), (comm, error), answer(error, barrier(comm_of(comm))))
COLLECTIVES_FORTRAN_I(barrier, (Int comm, MPI_Fint* request, MPI_Fint* error), (comm, request, error),
                      ibarrier(comm_of(comm), &begun))

COLLECTIVES_FORTRAN(alltoall,
                    (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int comm,
                     MPI_Fint* error),
                    (send, send_count, send_type, receive, count, type, comm, error),
                    answer(error, alltoall(buffer(send), *send_count, type_of(send_type), buffer(receive), *count,
                                           type_of(type), comm_of(comm))))
COLLECTIVES_FORTRAN_I(alltoall,
                      (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int comm,
                       MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, count, type, comm, request, error),
                      ialltoall(buffer(send), *send_count, type_of(send_type), buffer(receive), *count, type_of(type),
                                comm_of(comm), &begun))

COLLECTIVES_FORTRAN(alltoallv,
                    (const void* send, Int send_counts, Int send_places, Int send_type, void* receive, Int counts,
                     Int places, Int type, Int comm, MPI_Fint* error),
                    (send, send_counts, send_places, send_type, receive, counts, places, type, comm, error),
                    answer(error, alltoallv(buffer(send), send_counts, send_places, type_of(send_type), buffer(receive),
                                            counts, places, type_of(type), comm_of(comm))))
COLLECTIVES_FORTRAN_I(alltoallv,
                      (const void* send, Int send_counts, Int send_places, Int send_type, void* receive, Int counts,
                       Int places, Int type, Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_counts, send_places, send_type, receive, counts, places, type, comm, request, error),
                      ialltoallv(buffer(send), send_counts, send_places, type_of(send_type), buffer(receive), counts,
                                 places, type_of(type), comm_of(comm), &begun))

COLLECTIVES_FORTRAN(gather,
                    (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int root,
                     Int comm, MPI_Fint* error),
                    (send, send_count, send_type, receive, count, type, root, comm, error),
                    answer(error, gather(buffer(send), *send_count, type_of(send_type), buffer(receive), *count,
                                         type_of(type), *root, comm_of(comm))))
COLLECTIVES_FORTRAN_I(gather,
                      (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int root,
                       Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, count, type, root, comm, request, error),
                      igather(buffer(send), *send_count, type_of(send_type), buffer(receive), *count, type_of(type),
                              *root, comm_of(comm), &begun))

COLLECTIVES_FORTRAN(gatherv,
                    (const void* send, Int send_count, Int send_type, void* receive, Int counts, Int places, Int type,
                     Int root, Int comm, MPI_Fint* error),
                    (send, send_count, send_type, receive, counts, places, type, root, comm, error),
                    answer(error, gatherv(buffer(send), *send_count, type_of(send_type), buffer(receive), counts,
                                          places, type_of(type), *root, comm_of(comm))))
COLLECTIVES_FORTRAN_I(gatherv,
                      (const void* send, Int send_count, Int send_type, void* receive, Int counts, Int places, Int type,
                       Int root, Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, counts, places, type, root, comm, request, error),
                      igatherv(buffer(send), *send_count, type_of(send_type), buffer(receive), counts, places,
                               type_of(type), *root, comm_of(comm), &begun))

COLLECTIVES_FORTRAN(scatter,
                    (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int root,
                     Int comm, MPI_Fint* error),
                    (send, send_count, send_type, receive, count, type, root, comm, error),
                    answer(error, scatter(buffer(send), *send_count, type_of(send_type), buffer(receive), *count,
                                          type_of(type), *root, comm_of(comm))))
COLLECTIVES_FORTRAN_I(scatter,
                      (const void* send, Int send_count, Int send_type, void* receive, Int count, Int type, Int root,
                       Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_count, send_type, receive, count, type, root, comm, request, error),
                      iscatter(buffer(send), *send_count, type_of(send_type), buffer(receive), *count, type_of(type),
                               *root, comm_of(comm), &begun))

COLLECTIVES_FORTRAN(scatterv,
                    (const void* send, Int send_counts, Int places, Int send_type, void* receive, Int count, Int type,
                     Int root, Int comm, MPI_Fint* error),
                    (send, send_counts, places, send_type, receive, count, type, root, comm, error),
                    answer(error, scatterv(buffer(send), send_counts, places, type_of(send_type), buffer(receive),
                                           *count, type_of(type), *root, comm_of(comm))))
COLLECTIVES_FORTRAN_I(scatterv,
                      (const void* send, Int send_counts, Int places, Int send_type, void* receive, Int count, Int type,
                       Int root, Int comm, MPI_Fint* request, MPI_Fint* error),
                      (send, send_counts, places, send_type, receive, count, type, root, comm, request, error),
                      iscatterv(buffer(send), send_counts, places, type_of(send_type), buffer(receive), *count,
                                type_of(type), *root, comm_of(comm), &begun))

COLLECTIVES_FORTRAN(scan, (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* error),
                    (send, receive, count, type, op, comm, error),
                    answer(error, scan(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm))))
COLLECTIVES_FORTRAN_I(scan,
                      (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* request,
                       MPI_Fint* error),
                      (send, receive, count, type, op, comm, request, error),
                      iscan(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm), &begun))

COLLECTIVES_FORTRAN(exscan, (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* error),
                    (send, receive, count, type, op, comm, error),
                    answer(error,
                           exscan(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm))))
COLLECTIVES_FORTRAN_I(exscan,
                      (const void* send, void* receive, Int count, Int type, Int op, Int comm, MPI_Fint* request,
                       MPI_Fint* error),
                      (send, receive, count, type, op, comm, request, error),
                      iexscan(buffer(send), buffer(receive), *count, type_of(type), op_of(op), comm_of(comm), &begun))

COLLECTIVES_FORTRAN_INIT(init_, (MPI_Fint * error), (&code))
COLLECTIVES_FORTRAN_INIT(init_f08_, (MPI_Fint * error), (&code))
COLLECTIVES_FORTRAN_INIT(init_thread_, (Int required, MPI_Fint* provided, MPI_Fint* error), (required, provided, &code))
COLLECTIVES_FORTRAN_INIT(init_thread_f08_, (Int required, MPI_Fint* provided, MPI_Fint* error),
                         (required, provided, &code))

#endif
