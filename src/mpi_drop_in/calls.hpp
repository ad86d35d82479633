// Collectives of MPI with the arguments that the program has passed, one struct each. The drop-in is a library that an
// MPI program preloads. It performs collectives of the program in place of MPI. Blocking and non-blocking forms use the
// same structs.
//
// Each struct has two functions. The function eligibility() returns the length of the vector, and the reason if the
// library cannot perform the call. The result is equal on all ranks. Exception: if arguments are wrong on one rank
// only, the function returns this reason on this rank only, and the rank refuses the call (decision.hpp). The function
// job() translates the MPI call to a call of the library.
#pragma once

#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/decision.hpp"
#include "mpi_drop_in/job.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

struct AllReduce {
  static constexpr Kind kKind = Kind::all_reduce;
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct ReduceToRoot {
  static constexpr Kind kKind = Kind::reduce;
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct ReduceScatter {
  static constexpr Kind kKind = Kind::reduce_scatter;
  const void* send;
  void* receive;
  const int* counts;
  MPI_Datatype type;
  MPI_Op op;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct ReduceScatterBlock {
  static constexpr Kind kKind = Kind::reduce_scatter_block;
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct AllGather {
  static constexpr Kind kKind = Kind::all_gather;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  int count;
  MPI_Datatype type;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct AllGatherV {
  static constexpr Kind kKind = Kind::all_gather_v;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  const int* counts;
  const int* places;
  MPI_Datatype type;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct Broadcast {
  static constexpr Kind kKind = Kind::broadcast;
  void* data;
  int count;
  MPI_Datatype type;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct AllToAll {
  static constexpr Kind kKind = Kind::all_to_all;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  int count;
  MPI_Datatype type;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct AllToAllV {
  static constexpr Kind kKind = Kind::all_to_all_v;
  const void* send;
  const int* send_counts;
  const int* send_places;
  MPI_Datatype send_type;
  void* receive;
  const int* counts;
  const int* places;
  MPI_Datatype type;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct Gather {
  static constexpr Kind kKind = Kind::gather;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  int count;
  MPI_Datatype type;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct GatherV {
  static constexpr Kind kKind = Kind::gather_v;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  const int* counts;
  const int* places;
  MPI_Datatype type;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct Scatter {
  static constexpr Kind kKind = Kind::scatter;
  const void* send;
  int send_count;
  MPI_Datatype send_type;
  void* receive;
  int count;
  MPI_Datatype type;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct ScatterV {
  static constexpr Kind kKind = Kind::scatter_v;
  const void* send;
  const int* send_counts;
  const int* send_places;
  MPI_Datatype send_type;
  void* receive;
  int count;
  MPI_Datatype type;
  int root;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct Scan {
  static constexpr Kind kKind = Kind::scan;
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct ExclusiveScan {
  static constexpr Kind kKind = Kind::exclusive_scan;
  const void* send;
  void* receive;
  int count;
  MPI_Datatype type;
  MPI_Op op;
  Eligibility eligibility(const CommState&) const;
  Job job(const CommState&) const;
};

struct Barrier {
  static constexpr Kind kKind = Kind::barrier;
  Eligibility eligibility(const CommState&) const { return {}; }
  Job job(const CommState&) const { return {}; }
};

}  // namespace collectives::drop_in
