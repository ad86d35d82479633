// Test program of the C interface, compiled as C99. It runs one test, called a situation (c_interface_test.h):
//
//   c_interface_test SITUATION             ranks are processes of a launcher, or this process is the only rank
//   c_interface_test SITUATION THREADS     ranks are threads of this process
#define _POSIX_C_SOURCE 200809L  // setenv, pthread

#include "c_interface_test.h"

#include <pthread.h>

size_t size_of(const Comm* comm) { return (size_t)collectives_size(comm); }

float* floats(size_t count, float value) {
  float* list = malloc((count + 1) * sizeof *list);
  CHECK(list != NULL);
  for (size_t i = 0; i < count; ++i) list[i] = value;
  return list;
}

void finish(collectives_work* work) {
  OK(collectives_work_wait(work));
  collectives_work_free(work);
}

void check_same_everywhere(Comm* comm, const void* bytes, size_t count) {
  char* all = malloc(count * size_of(comm));
  OK(collectives_all_gather(comm, bytes, all, count, COLLECTIVES_U8, NULL));
  for (size_t r = 0; r < size_of(comm); ++r) CHECK(memcmp(all + r * count, bytes, count) == 0);
  free(all);
}

typedef struct {
  collectives_threads* threads;
  int rank;
  void (*run)(Comm*);
} Member;

static void* run_member(void* argument) {
  const Member* member = argument;
  Comm* comm;
  OK(collectives_communicator_from_threads(member->threads, member->rank, NULL, &comm));
  CHECK(collectives_rank(comm) == member->rank);
  member->run(comm);
  collectives_communicator_free(comm);
  return NULL;
}

// Runs a situation on `ranks` threads of this process.
static void run_threads(int ranks, void (*run)(Comm*)) {
  collectives_threads* threads;
  Member members[16];
  pthread_t ids[16];
  CHECK(ranks <= 16);
  OK(collectives_threads_create(ranks, &threads));
  for (int r = 0; r < ranks; ++r) {
    members[r] = (Member){threads, r, run};
    CHECK(pthread_create(&ids[r], NULL, run_member, &members[r]) == 0);
  }
  for (int r = 0; r < ranks; ++r) CHECK(pthread_join(ids[r], NULL) == 0);
  Comm* none;
  INVALID("rank -1 of", collectives_communicator_from_threads(threads, -1, NULL, &none));
  char beyond[40];
  snprintf(beyond, sizeof beyond, "rank %d of %d", ranks, ranks);
  INVALID(beyond, collectives_communicator_from_threads(threads, ranks, NULL, &none));
  collectives_threads_free(threads);
}

void RanksMayBeThreads(Comm* comm) {
  OK(collectives_barrier(comm, NULL));
  run_threads(3, ScatterGatherAndBroadcast);
  run_threads(2, AreToldWhoDisagrees);
}

int main(int argc, char** argv) {
  enum { together, apart, alone };
#define ROW(name, ranks, where) {#name, name, where},
  const struct {
    const char* name;
    void (*run)(Comm*);
    int where;
  } situations[] = {SITUATIONS(ROW)};
  for (size_t i = 0; i < sizeof situations / sizeof *situations; ++i) {
    if (argc < 2 || strcmp(argv[1], situations[i].name) != 0) continue;
    if (argc > 2) {
      run_threads(atoi(argv[2]), situations[i].run);
      return 0;
    }
    const char* rank = getenv("RANK");
    if (situations[i].where == apart) setenv("COLLECTIVES_HOST_ID", rank == NULL ? "0" : rank, 1);
    Comm* comm;
    OK(collectives_communicator_from_environment(NULL, &comm));
    situations[i].run(comm);
    collectives_communicator_free(comm);
    return 0;
  }
  fprintf(stderr, "no such situation\n");
  return 2;
}
