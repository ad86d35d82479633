// Functions that replace those of MPI in the drop-in, a library that users preload into an MPI program.
//
// Each function has the parameters of the MPI function. It stores its arguments in a struct of calls.hpp, and passes
// the struct to blocking() or non_blocking(). These two functions perform the call by this library, or forward it to
// the PMPI_ function of MPI. The functions report() report an error of a call to the program.
#include "mpi_drop_in/functions.hpp"

#include <cstddef>
#include <new>

#include "base/log.hpp"
#include "collectives/error.hpp"
#include "mpi_drop_in/perform.hpp"

namespace collectives::drop_in {

namespace {

int call_handler(const CommState& state, int error) noexcept {
  PMPI_Comm_call_errhandler(state.comm() == MPI_COMM_NULL ? MPI_COMM_WORLD : state.comm(), error);
  return error;
}

}  // namespace

int report(CommState& state, const std::exception& error) noexcept {
  log_error(state.rank(), "{}", error.what());
  // The library has already reported an exception of type Error to all peers. After any other exception, abort() makes
  // all ranks fail.
  if (dynamic_cast<const Error*>(&error) == nullptr) state.communicator().abort(error.what());
  return call_handler(state, MPI_ERR_OTHER);
}

int report(const CommState& state, Kind kind, const Refused& refused) noexcept {
  log_error(state.rank(), "{}: {}", kKindNames[static_cast<std::size_t>(kind)], refused.why);
  return call_handler(state, refused.error_class);
}

void refuse(CommState& state, Kind kind, int error_class, const char* why) {
  state.refuse(kind, why);
  throw Refused{error_class, why};
}

void refuse_as_mpi(CommState& state, Kind kind, int code) noexcept {
  int error_class = MPI_ERR_OTHER;
  PMPI_Error_class(code, &error_class);
  for (const int refused : {MPI_ERR_BUFFER, MPI_ERR_COUNT, MPI_ERR_TYPE, MPI_ERR_OP, MPI_ERR_ROOT, MPI_ERR_ARG})
    if (error_class == refused) try {
        state.refuse(kind, error_text(code));
      } catch (const std::bad_alloc&) {  // without memory, no refusal is published; MPI still reports its error
      }
}

int allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) noexcept {
  return blocking(AllReduce{sendbuf, recvbuf, count, datatype, op}, comm,
                  [&] { return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm); });
}

int reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
           MPI_Comm comm) noexcept {
  return blocking(ReduceToRoot{sendbuf, recvbuf, count, datatype, op, root}, comm,
                  [&] { return PMPI_Reduce(sendbuf, recvbuf, count, datatype, op, root, comm); });
}

int reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm) noexcept {
  return blocking(ReduceScatter{sendbuf, recvbuf, recvcounts, datatype, op}, comm,
                  [&] { return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm); });
}

int reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                         MPI_Comm comm) noexcept {
  return blocking(ReduceScatterBlock{sendbuf, recvbuf, recvcount, datatype, op}, comm,
                  [&] { return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm); });
}

int allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm) noexcept {
  return blocking(AllGather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm,
                  [&] { return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
               const int displs[], MPI_Datatype recvtype, MPI_Comm comm) noexcept {
  return blocking(AllGatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype}, comm, [&] {
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
  });
}

int bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) noexcept {
  return blocking(Broadcast{buffer, count, datatype, root}, comm,
                  [&] { return PMPI_Bcast(buffer, count, datatype, root, comm); });
}

int barrier(MPI_Comm comm) noexcept {
  return blocking(Barrier{}, comm, [&] { return PMPI_Barrier(comm); });
}

int alltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
             MPI_Datatype recvtype, MPI_Comm comm) noexcept {
  return blocking(AllToAll{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm,
                  [&] { return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int alltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void* recvbuf,
              const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm) noexcept {
  return blocking(AllToAllV{sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype}, comm, [&] {
    return PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm);
  });
}

int gather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
           MPI_Datatype recvtype, int root, MPI_Comm comm) noexcept {
  return blocking(Gather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root}, comm,
                  [&] { return PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm); });
}

int gatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
            const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm) noexcept {
  return blocking(GatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root}, comm, [&] {
    return PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm);
  });
}

int scatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm) noexcept {
  return blocking(Scatter{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root}, comm,
                  [&] { return PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm); });
}

int scatterv(const void* sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recvbuf,
             int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) noexcept {
  return blocking(ScatterV{sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root}, comm, [&] {
    return PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm);
  });
}

int scan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) noexcept {
  return blocking(Scan{sendbuf, recvbuf, count, datatype, op}, comm,
                  [&] { return PMPI_Scan(sendbuf, recvbuf, count, datatype, op, comm); });
}

int exscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) noexcept {
  return blocking(ExclusiveScan{sendbuf, recvbuf, count, datatype, op}, comm,
                  [&] { return PMPI_Exscan(sendbuf, recvbuf, count, datatype, op, comm); });
}

int iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
               MPI_Request* request) noexcept {
  return non_blocking(AllReduce{sendbuf, recvbuf, count, datatype, op}, comm, request,
                      [&] { return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int ireduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm,
            MPI_Request* request) noexcept {
  return non_blocking(ReduceToRoot{sendbuf, recvbuf, count, datatype, op, root}, comm, request,
                      [&] { return PMPI_Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request); });
}

int ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                    MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(ReduceScatter{sendbuf, recvbuf, recvcounts, datatype, op}, comm, request,
                      [&] { return PMPI_Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request); });
}

int ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                          MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(ReduceScatterBlock{sendbuf, recvbuf, recvcount, datatype, op}, comm, request, [&] {
    return PMPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, request);
  });
}

int iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
               MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(AllGather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm, request, [&] {
    return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request);
  });
}

int iallgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                const int displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(
      AllGatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype}, comm, request, [&] {
        return PMPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request);
      });
}

int ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(Broadcast{buffer, count, datatype, root}, comm, request,
                      [&] { return PMPI_Ibcast(buffer, count, datatype, root, comm, request); });
}

int ibarrier(MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(Barrier{}, comm, request, [&] { return PMPI_Ibarrier(comm, request); });
}

int ialltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(AllToAll{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm, request, [&] {
    return PMPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request);
  });
}

int ialltoallv(const void* sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void* recvbuf,
               const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
               MPI_Request* request) noexcept {
  return non_blocking(AllToAllV{sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype}, comm,
                      request, [&] {
                        return PMPI_Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls,
                                               recvtype, comm, request);
                      });
}

int igather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
            MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(Gather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root}, comm, request, [&] {
    return PMPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request);
  });
}

int igatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
             const int displs[], MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(
      GatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root}, comm, request, [&] {
        return PMPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, root, comm, request);
      });
}

int iscatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
             MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(Scatter{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root}, comm, request, [&] {
    return PMPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm, request);
  });
}

int iscatterv(const void* sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm, MPI_Request* request) noexcept {
  return non_blocking(
      ScatterV{sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root}, comm, request, [&] {
        return PMPI_Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm, request);
      });
}

int iscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
          MPI_Request* request) noexcept {
  return non_blocking(Scan{sendbuf, recvbuf, count, datatype, op}, comm, request,
                      [&] { return PMPI_Iscan(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int iexscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
            MPI_Request* request) noexcept {
  return non_blocking(ExclusiveScan{sendbuf, recvbuf, count, datatype, op}, comm, request,
                      [&] { return PMPI_Iexscan(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

}  // namespace collectives::drop_in
