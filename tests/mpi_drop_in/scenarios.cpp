// An MPI program with one error, or with one use of MPI that a drop-in might handle wrongly. A drop-in is a preloaded
// library that takes over MPI's collectives:
//
//   scenarios before_init | after_finalize | ranks_disagree | ranks_disagree_fatally | coded | no_descriptors
//   scenarios one_refuses allreduce | bcast | gatherv | type | first      the last rank makes a call that MPI refuses
//   scenarios pair_differs                   the last rank sends an int more to rank 0 than that expects
//   scenarios packed                         one rank packs what the others pass as ints
//   scenarios patience | lengths | many      calls on both sides of a documented limit, for the statistics to count
//   scenarios spawns [NAME=VALUE...]         two more ranks, with these variables in their environment
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include <mpi.h>
#include <sys/resource.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "support/system.hpp"

namespace {

int sum_of(int count, MPI_Comm comm) {
  std::vector<int> ones(static_cast<std::size_t>(count), 1), sums(ones.size());
  return MPI_Allreduce(ones.data(), sums.data(), count, MPI_INT, MPI_SUM, comm);
}

/// Passes another count on rank 0. All ranks must get the error.
int ranks_disagree(int rank) {
  for (int i = 0; i < 3; ++i) sum_of(10, MPI_COMM_WORLD);
  const int code = sum_of(rank == 0 ? 9 : 10, MPI_COMM_WORLD);
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code, &error_class);
  const int later = sum_of(10, MPI_COMM_WORLD);
  std::printf("rank %d: class %s\n", rank, error_class == MPI_ERR_OTHER ? "other" : "something else");
  return error_class == MPI_ERR_OTHER && later != MPI_SUCCESS ? 0 : 1;
}

/// Lets the last rank make a call that MPI refuses, while the other ranks make a right one. Each rank must get an error
/// of its own class soon, and the next call must fail everywhere.
int one_refuses(std::string_view how, int rank, int size) {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Datatype never_committed = MPI_DATATYPE_NULL;
  MPI_Type_contiguous(2, MPI_INT, &never_committed);
  std::vector<int> values(10000, rank), sums(values.size());
  if (how != "first") sum_of(10, comm);
  const bool refuses = rank == size - 1;
  const double start = MPI_Wtime();
  int code = MPI_SUCCESS, expected = refuses ? MPI_ERR_COUNT : MPI_ERR_OTHER;
  if (how == "bcast") {
    expected = refuses ? MPI_ERR_ROOT : MPI_ERR_OTHER;
    code = MPI_Bcast(values.data(), 10000, MPI_INT, refuses ? size : 1, comm);
  } else if (how == "gatherv") {
    std::vector<int> counts(static_cast<std::size_t>(size), 1), places(counts.size());
    code = MPI_Gatherv(values.data(), refuses ? -1 : 1, MPI_INT, sums.data(), counts.data(), places.data(), MPI_INT,
                       size - 1, comm);
  } else if (how == "type") {
    expected = refuses ? MPI_ERR_TYPE : MPI_ERR_OTHER;
    code = MPI_Bcast(values.data(), refuses ? 5000 : 10000, refuses ? never_committed : MPI_INT, 1, comm);
  } else if (how == "first" && refuses) {
    expected = MPI_ERR_OP;
    code = MPI_Allreduce(values.data(), sums.data(), 10000, MPI_INT, MPI_OP_NULL, comm);
  } else {
    code = MPI_Allreduce(values.data(), sums.data(), refuses ? -1 : 10000, MPI_INT, MPI_SUM, comm);
  }
  // A broadcast may end before the last rank refuses it. Its peers then fail in the barrier.
  const int later = MPI_Barrier(comm);
  const double seconds = MPI_Wtime() - start;
  int error_class = MPI_SUCCESS;
  MPI_Error_class(code == MPI_SUCCESS && !refuses ? later : code, &error_class);
  std::printf("rank %d: class %d, expected %d, then %d, after %.1f s\n", rank, error_class, expected, later, seconds);
  MPI_Type_free(&never_committed);
  MPI_Comm_free(&comm);
  return error_class == expected && later != MPI_SUCCESS && seconds < 10 ? 0 : 1;
}

/// Lets the last rank send an int more to rank 0 than that expects. All ranks must get an error.
int pair_differs(int rank, int size) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  sum_of(10, MPI_COMM_WORLD);
  std::vector<int> sent(static_cast<std::size_t>(size), 2), received(sent), places(sent);
  for (int r = 0; r < size; ++r) places[static_cast<std::size_t>(r)] = 3 * r;
  std::vector<int> in(3 * sent.size()), out(in.size());
  if (rank == size - 1) sent[0] = 3;
  MPI_Alltoallv(in.data(), sent.data(), places.data(), MPI_INT, out.data(), received.data(), places.data(), MPI_INT,
                MPI_COMM_WORLD);
  return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? 1 : 0;
}

/// Lets rank 0 broadcast packed ints, which the other ranks receive as ints.
int packed(int rank) {
  std::vector<int> values(10000, rank == 0 ? 5 : 0), pack(values.size());
  int place = 0;
  const int bytes = static_cast<int>(pack.size() * sizeof(int));
  MPI_Pack(values.data(), 10000, MPI_INT, pack.data(), bytes, &place, MPI_COMM_WORLD);
  if (rank == 0)
    MPI_Bcast(pack.data(), bytes, MPI_PACKED, 0, MPI_COMM_WORLD);
  else
    MPI_Bcast(values.data(), 10000, MPI_INT, 0, MPI_COMM_WORLD);
  const int code = MPI_Barrier(MPI_COMM_WORLD);
  return code == MPI_SUCCESS && values == std::vector<int>(10000, 5) ? 0 : 1;
}

/// Tells whether sums travel as bf16: sums of values that bf16 represents are exact, and other sums lose their third
/// decimal.
int coded(int rank, int size) {
  std::vector<float> values(1 << 16, 1.0F + static_cast<float>(rank)), sums(values.size());
  int wrong = 0;
  for (int i = 0; i < 3; ++i) {
    MPI_Allreduce(values.data(), sums.data(), 1 << 16, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    wrong += sums[5] != static_cast<float>(size * (size + 1) / 2) ? 1 : 0;
    MPI_Allreduce(values.data(), sums.data(), 1 << 16, MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD);
    wrong += sums[5] != static_cast<float>(size) ? 1 : 0;
  }
  values.assign(values.size(), 1.001F);
  MPI_Allreduce(values.data(), sums.data(), 1 << 16, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  const bool exact = std::fabs(sums[5] - 1.001F * static_cast<float>(size)) < 1e-5F;
  if (rank == 0) std::printf("sums of f32 are %s\n", exact ? "exact" : "coded");
  return wrong;
}

/// Makes 2008 sums of 4 bytes on one communicator and 7 sums of 512 KiB on another.
void patience() {
  for (int i = 0; i < 2008; ++i) sum_of(1, MPI_COMM_WORLD);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  for (int i = 0; i < 7; ++i) sum_of(1 << 17, comm);
  MPI_Comm_free(&comm);
}

void lengths() {
  std::vector<char> bytes(1 << 20), whole(1 << 20);
  for (const int length : {256, 257, 16384, 16385}) MPI_Bcast(bytes.data(), length, MPI_CHAR, 0, MPI_COMM_WORLD);
  for (const int ints : {64, 65}) MPI_Reduce(bytes.data(), whole.data(), ints, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
  for (const int mine : {1, 1 << 19})  // bytes of one rank; the vector of two ranks has twice as many
    MPI_Allgather(bytes.data(), mine, MPI_CHAR, whole.data(), mine, MPI_CHAR, MPI_COMM_WORLD);
}

void many() {
  std::vector<MPI_Comm> comms(66);
  for (MPI_Comm& comm : comms) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    sum_of(1, comm);
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

/// Lets the last rank run out of descriptors while communicators are constructed. The sums must be right on all ranks.
int no_descriptors(int rank, int size) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t before = limit.rlim_cur;
  if (rank == size - 1) {
    limit.rlim_cur = 0;
    // Sanitizers open pipes to test whether memory is mapped.
    if (collectives::testing::kSanitized)
      collectives::testing::refuse_calls({{SYS_memfd_create, EMFILE},
                                          {SYS_openat, EMFILE, 2, O_RDWR | O_CLOEXEC},
                                          {SYS_socket, EMFILE},
                                          {SYS_accept4, EMFILE}});
    else
      setrlimit(RLIMIT_NOFILE, &limit);
  }
  int wrong = 0;
  for (int i = 0; i < 100; ++i) {
    int sum = 0;
    MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong += sum != i * size ? 1 : 0;
  }
  limit.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &limit);
  return wrong;
}

int wrong_sums(MPI_Comm comm, int expected) {
  int wrong = 0;
  for (int i = 0; i < 50; ++i) {
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    wrong += sum != expected ? 1 : 0;
  }
  return wrong;
}

/// Joins two MPI worlds, each with or without the drop-in. Runs collectives between them, in one common communicator,
/// and in a part of it.
int meet(MPI_Comm other_world, bool spawned) {
  int size = 0, others = 0;
  MPI_Comm all = MPI_COMM_NULL, mine = MPI_COMM_NULL;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_remote_size(other_world, &others);
  MPI_Intercomm_merge(other_world, spawned ? 1 : 0, &all);
  MPI_Comm_split(all, spawned ? 1 : 0, 0, &mine);
  const int wrong = wrong_sums(other_world, others) + wrong_sums(all, size + others) + wrong_sums(mine, size) +
                    wrong_sums(MPI_COMM_WORLD, size);
  MPI_Comm_free(&mine);
  MPI_Comm_free(&all);
  MPI_Comm_disconnect(&other_world);
  return wrong;
}

int spawns(char** argv) {
  std::string program(argv[0]), meets("meets");
  std::vector<char*> arguments;
  for (char** variable = argv + 2; *variable != nullptr; ++variable) arguments.push_back(*variable);
  for (char* more : {program.data(), meets.data(), static_cast<char*>(nullptr)}) arguments.push_back(more);
  MPI_Comm children = MPI_COMM_NULL;
  MPI_Comm_spawn("env", arguments.data(), 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
  return meet(children, false);
}

int meets() {
  MPI_Comm parents = MPI_COMM_NULL;
  MPI_Comm_get_parent(&parents);
  return meet(parents, true);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "before_init") return MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS ? 1 : 0;
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0, wrong = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (what == "ranks_disagree") MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (what == "ranks_disagree" || what == "ranks_disagree_fatally") wrong = ranks_disagree(rank);
  if (what == "one_refuses") wrong = one_refuses(argc > 2 ? argv[2] : "", rank, size);
  if (what == "packed") wrong = packed(rank);
  if (what == "pair_differs") wrong = pair_differs(rank, size);
  if (what == "coded") wrong = coded(rank, size);
  if (what == "patience") patience();
  if (what == "lengths") lengths();
  if (what == "many") many();
  if (what == "no_descriptors") wrong = no_descriptors(rank, size);
  if (what == "spawns") wrong = spawns(argv);
  if (what == "meets") wrong = meets();
  MPI_Finalize();
  if (what == "after_finalize") return sum_of(1, MPI_COMM_WORLD) == MPI_SUCCESS ? 1 : 0;
  return wrong;
}
