// Corner cases of an MPI program (corner_cases.hpp): communicators, and errors on them. The drop-in is a preloaded
// library that performs MPI's collectives.
#include <dirent.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "corner_cases.hpp"

void communicators_of_all_kinds() {
  MPI_Comm half = MPI_COMM_NULL, backwards = MPI_COMM_NULL, alone = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &backwards);
  MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &alone);
  int members = 0, place = 0, one = 1, sum = 0;
  MPI_Comm_size(half, &members);
  MPI_Comm_rank(backwards, &place);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, half);
  CHECK(sum == members);
  int from = place == 0 ? rank : -1;
  MPI_Bcast(&from, 1, MPI_INT, 0, backwards);
  CHECK(from == size - 1);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, alone);
  CHECK(sum == 1);
  if (size > 1) {  // an inter-communicator between the two halves
    MPI_Comm between = MPI_COMM_NULL;
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &between);
    int theirs = 0;
    for (int i = 0; i < 3; ++i) {
      MPI_Allreduce(&one, &theirs, 1, MPI_INT, MPI_SUM, between);
      CHECK(theirs == (rank % 2 == 0 ? size / 2 : (size + 1) / 2));
      int said = rank == 0 ? 17 : -1;
      MPI_Bcast(&said, 1, MPI_INT, rank == 0 ? MPI_ROOT : rank % 2 == 0 ? MPI_PROC_NULL : 0, between);
      CHECK(said == (rank == 0 || rank % 2 == 1 ? 17 : -1));
      MPI_Barrier(between);
    }
    MPI_Comm_free(&between);
  }
  MPI_Comm_free(&half);
  MPI_Comm_free(&backwards);
  MPI_Comm_free(&alone);
}

void communicators_made_by_every_function() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comm);
  used(comm, size);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Comm_idup(comm, &copy, &request);  // the drop-in has taken over `comm`, which is used during the duplication
  used(comm, size);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  used(copy, size);
  MPI_Comm_disconnect(&copy);
  MPI_Comm_free(&comm);

  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
  int members = 0;
  MPI_Comm_size(comm, &members);
  used(comm, members);
  MPI_Comm_free(&comm);

  // A communicator of all ranks but rank 0, made once by all ranks and once without rank 0.
  MPI_Group world = MPI_GROUP_NULL, others = MPI_GROUP_NULL;
  const int zero = 0;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_excl(world, 1, &zero, &others);
  MPI_Comm_create(MPI_COMM_WORLD, others, &comm);
  CHECK((comm == MPI_COMM_NULL) == (rank == 0 || size == 1));
  if (comm != MPI_COMM_NULL) {
    used(comm, size - 1);
    MPI_Comm_free(&comm);
  }
  if (rank > 0) {
    MPI_Comm_create_group(MPI_COMM_WORLD, others, 7, &comm);
    used(comm, size - 1);
    MPI_Comm_free(&comm);
  }
  MPI_Group_free(&others);
  MPI_Group_free(&world);

  if (size > 1) {  // two halves, merged in reverse order
    MPI_Comm half = MPI_COMM_NULL, between = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank % 2 == 0 ? 1 : 0, 3, &between);
    MPI_Intercomm_merge(between, rank % 2 == 0 ? 1 : 0, &comm);
    used(comm, size);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
  }
}

void neighbours() {
  const int round_about = 1;
  MPI_Comm ring = MPI_COMM_NULL;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &round_about, 1, &ring);
  used(ring, size);
  int place = 0;
  MPI_Comm_rank(ring, &place);
  const int left = (place + size - 1) % size, right = (place + 1) % size;
  int both[2] = {-1, -1};
  MPI_Neighbor_allgather(&place, 1, MPI_INT, both, 1, MPI_INT, ring);
  CHECK(both[0] == left && both[1] == right);
  // MPI's operations progress during a collective of the drop-in.
  const int mine[] = {10 * place, 10 * place + 1};
  int theirs[2] = {-1, -1}, one = 1, sum = 0;
  MPI_Request requests[2];
  MPI_Ineighbor_alltoall(mine, 1, MPI_INT, theirs, 1, MPI_INT, ring, &requests[0]);
  MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, ring, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  // With two ranks the left and the right neighbour are one rank, and MPI decides which message is which.
  CHECK(sum == size && (size <= 2 || (theirs[0] == 10 * left + 1 && theirs[1] == 10 * right)));
  MPI_Comm_free(&ring);
}

#if MPI_VERSION >= 4
void sessions() {
  MPI_Session session = MPI_SESSION_NULL;
  MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_create_from_group(group, "of a session", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
  used(comm, size);
  MPI_Comm_free(&comm);
  MPI_Group_free(&group);
  MPI_Session_finalize(&session);
}
#endif

namespace {

std::size_t open_files() {
  std::size_t files = 0;
  DIR* directory = ::opendir("/proc/self/fd");
  while (::readdir(directory) != nullptr) ++files;
  ::closedir(directory);
  return files;
}
std::size_t lines_of(const char* path) {
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}
long resident_pages() {
  long all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident;
}

}  // namespace

void communicators_by_the_thousand() {
  const auto some = [](int number) {
    for (int i = 0; i < number; ++i) {
      MPI_Comm one = MPI_COMM_NULL;
      i % 2 == 0 ? MPI_Comm_dup(MPI_COMM_WORLD, &one) : MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &one);
      for (int call = 0; call < 2; ++call) {
        int ones = 1, sum = 0;
        MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, one);
        CHECK(sum == size);
      }
      MPI_Comm_free(&one);
    }
  };
  const char* const number = std::getenv("COLLECTIVES_TEST_COMMUNICATORS");
  some(50);
  const std::size_t files = open_files(), maps = lines_of("/proc/self/maps");
  [[maybe_unused]] const long pages = resident_pages();
  some(number == nullptr ? 100 : std::atoi(number));
  CHECK(open_files() <= files + 4);
  CHECK(lines_of("/proc/self/maps") <= maps + 20);
#ifndef __SANITIZE_ADDRESS__                // the address sanitizer keeps freed memory for a while
  CHECK(resident_pages() <= pages + 4096);  // 4096 pages of 4 KiB, an allowance of 16 MiB for other memory
#endif
}

void more_communicators_than_are_built() {
  std::vector<MPI_Comm> many(80);
  for (MPI_Comm& one : many) MPI_Comm_dup(MPI_COMM_WORLD, &one);
  for (int round = 0; round < 3; ++round)
    for (MPI_Comm one : many) {
      int ones = 1, sum = 0;
      MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, one);
      CHECK(sum == size);
    }
  for (MPI_Comm& one : many) MPI_Comm_free(&one);
}

[[maybe_unused]] static int handled = 0;
[[maybe_unused]] static void handle(MPI_Comm*, int*, ...) { ++handled; }

void wrong_arguments_come_back_as_codes() {
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Comm_set_errhandler(mine, MPI_ERRORS_RETURN);
  int value = 1, sum = 0, error_class = 0;
  const auto class_of = [&](int code) {
    MPI_Error_class(code, &error_class);
    return error_class;
  };
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, mine);
  CHECK(class_of(MPI_Allreduce(&value, &sum, -1, MPI_INT, MPI_SUM, mine)) == MPI_ERR_COUNT);
  CHECK(MPI_Allreduce(&value, &sum, 1, MPI_DATATYPE_NULL, MPI_SUM, mine) != MPI_SUCCESS);
  CHECK(class_of(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_OP_NULL, mine)) == MPI_ERR_OP);
  CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, size, mine)) == MPI_ERR_ROOT);
  CHECK(MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, mine) != MPI_SUCCESS);
  CHECK(MPI_Allgather(&value, -1, MPI_INT, &sum, 1, MPI_INT, mine) != MPI_SUCCESS);
  CHECK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, mine) == MPI_SUCCESS && sum == size);
  MPI_Comm_free(&mine);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  CHECK(class_of(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL)) == MPI_ERR_COMM);
  CHECK(class_of(MPI_Barrier(MPI_COMM_NULL)) == MPI_ERR_COMM);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);

  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_dup(MPI_COMM_WORLD, &mine);
  MPI_Comm_set_errhandler(mine, handler);
  for (int i = 0; i < 3; ++i) MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, mine);
  MPI_Bcast(&value, 1, MPI_INT, -5, mine);
  CHECK(handled == 1);
  MPI_Comm_free(&mine);
  MPI_Errhandler_free(&handler);
}
