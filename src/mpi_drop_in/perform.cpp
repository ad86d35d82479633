// The functions of MPI that the drop-in defines.
#include "mpi_drop_in/perform.hpp"

#include "collectives/error.hpp"
#include "log.hpp"

namespace collectives::drop_in {

int report(MPI_Comm comm, Taken& taken, const std::exception& error) noexcept {
  log_error(taken.rank(), "{}", error.what());
  const auto* const ours = dynamic_cast<const Error*>(&error);
  const bool of_all = ours != nullptr && ours->code() != Errc::invalid_argument && ours->code() != Errc::unsupported;
  if (!of_all) taken.communicator().abort(error.what());
  PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
  return MPI_ERR_OTHER;
}

}  // namespace collectives::drop_in

using namespace collectives::drop_in;

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

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return blocking(AllReduce{sendbuf, recvbuf, count, datatype, op}, comm,
                  [&] { return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm); });
}

int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
               MPI_Comm comm) {
  return blocking(ReduceToRoot{sendbuf, recvbuf, count, datatype, op, root}, comm,
                  [&] { return PMPI_Reduce(sendbuf, recvbuf, count, datatype, op, root, comm); });
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                       MPI_Comm comm) {
  return blocking(ReduceScatter{sendbuf, recvbuf, recvcounts, datatype, op}, comm,
                  [&] { return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm); });
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm) {
  return blocking(ReduceScatterBlock{sendbuf, recvbuf, recvcount, datatype, op}, comm,
                  [&] { return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm); });
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                  MPI_Datatype recvtype, MPI_Comm comm) {
  return blocking(AllGather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm,
                  [&] { return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm); });
}

int MPI_Allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                   const int displs[], MPI_Datatype recvtype, MPI_Comm comm) {
  return blocking(AllGatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype}, comm, [&] {
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm);
  });
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  return blocking(Broadcast{buffer, count, datatype, root}, comm,
                  [&] { return PMPI_Bcast(buffer, count, datatype, root, comm); });
}

int MPI_Barrier(MPI_Comm comm) {
  return blocking(Barrier{}, comm, [&] { return PMPI_Barrier(comm); });
}

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  return non_blocking(AllReduce{sendbuf, recvbuf, count, datatype, op}, comm, request,
                      [&] { return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request); });
}

int MPI_Ireduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
  return non_blocking(ReduceToRoot{sendbuf, recvbuf, count, datatype, op, root}, comm, request,
                      [&] { return PMPI_Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request); });
}

int MPI_Ireduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
                        MPI_Comm comm, MPI_Request* request) {
  return non_blocking(ReduceScatter{sendbuf, recvbuf, recvcounts, datatype, op}, comm, request,
                      [&] { return PMPI_Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request); });
}

int MPI_Ireduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op,
                              MPI_Comm comm, MPI_Request* request) {
  return non_blocking(ReduceScatterBlock{sendbuf, recvbuf, recvcount, datatype, op}, comm, request, [&] {
    return PMPI_Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, request);
  });
}

int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
                   MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return non_blocking(AllGather{sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype}, comm, request, [&] {
    return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request);
  });
}

int MPI_Iallgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
                    const int displs[], MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  return non_blocking(
      AllGatherV{sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype}, comm, request, [&] {
        return PMPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm, request);
      });
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm, MPI_Request* request) {
  return non_blocking(Broadcast{buffer, count, datatype, root}, comm, request,
                      [&] { return PMPI_Ibcast(buffer, count, datatype, root, comm, request); });
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return non_blocking(Barrier{}, comm, request, [&] { return PMPI_Ibarrier(comm, request); });
}

}  // extern "C"
