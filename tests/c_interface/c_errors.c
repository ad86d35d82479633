// Tests of the C interface: errors that all ranks report, and the state of communicators, threads and forked children
// after an error. Each test is a function, called a situation (c_interface_test.h), and all ranks run it.
#define _POSIX_C_SOURCE 200809L  // declares setenv, pthread and fork

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "c_interface_test.h"

// ---- errors that all ranks report ----

// Checks that a communicator keeps returning the error that it has reported. Its properties, explain() and abort() must
// still work.
static void check_broken(Comm* comm, collectives_error code) {
  char text[1000] = "";
  strncat(text, collectives_last_error(), sizeof text - 1);
  float value = 1;
  collectives_work* work = (collectives_work*)&value;
  CHECK(collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL) == code);
  CHECK(strcmp(text, collectives_last_error()) == 0);
  CHECK(collectives_barrier_async(comm, NULL, &work) == code && work == NULL);
  CHECK(collectives_size(comm) > collectives_rank(comm));
  char* plan;
  OK(collectives_explain(comm, COLLECTIVES_BARRIER, 0, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &plan));
  collectives_free(plan);
  CHECK(strcmp(text, collectives_last_error()) == 0);  // a successful call does not change it
  OK(collectives_abort(comm, "too late"));
}

void AreToldWhoDisagrees(Comm* comm) {
  const int last = collectives_size(comm) - 1;
  const size_t count = collectives_rank(comm) == last ? 11 : 10;
  const collectives_options options = {.size = sizeof options, .name = "weights"};
  float data[kCount] = {0};
  collectives_error error = collectives_all_reduce(comm, data, data, count, COLLECTIVES_F32, COLLECTIVES_SUM, &options);
  if (error == COLLECTIVES_SUCCESS)
    error = collectives_barrier(comm, NULL);  // a rank whose call succeeded gets the error now
  CHECK(error == COLLECTIVES_ERROR_MISMATCH);
  char odd[100];
  snprintf(odd, sizeof odd, "rank %d passed 11 x f32", last);
  CHECK(strstr(collectives_last_error(), odd) != NULL);
  CHECK(strstr(collectives_last_error(), "passed 10 x f32") != NULL);
  CHECK(strstr(collectives_last_error_operation(), "all_reduce #") != NULL);
  CHECK(collectives_last_error_rank() == collectives_rank(comm));
  check_broken(comm, COLLECTIVES_ERROR_MISMATCH);
}

// The C interface refuses a call before the communicator has seen it.
void AreToldWhichRankRefuses(Comm* comm) {
  const int last = collectives_size(comm) - 1;
  float data[10] = {0};
  const collectives_op op = collectives_rank(comm) == last ? COLLECTIVES_USER_OP : COLLECTIVES_SUM;
  collectives_error error = collectives_all_reduce(comm, data, data, 10, COLLECTIVES_F32, op, NULL);
  if (collectives_rank(comm) == last) {
    CHECK(error == COLLECTIVES_ERROR_INVALID_ARGUMENT);
    error = collectives_barrier(comm, NULL);
  }
  CHECK(error == COLLECTIVES_ERROR_MISMATCH);
  char odd[100];
  snprintf(odd, sizeof odd, "rank %d refused all_reduce #", last);
  CHECK(strstr(collectives_last_error(), odd) != NULL);
  check_broken(comm, COLLECTIVES_ERROR_MISMATCH);
}

void AreToldWhoIsMissing(Comm* comm) {
  const int rank = collectives_rank(comm), last = collectives_size(comm) - 1;
  Comm *starts, *others;
  OK(collectives_split(comm, 0, 0, NULL, &starts));
  OK(collectives_split(comm, rank == last ? -1 : 0, 0, NULL, &others));
  const collectives_options soon = {.size = sizeof soon, .timeout_seconds = 0.2};
  char missing[100];
  snprintf(missing, sizeof missing, "rank %d has not arrived", last);
  char go = 1;
  if (rank == last) {  // arrives after all other ranks have failed
    OK(collectives_broadcast(starts, NULL, &go, 1, COLLECTIVES_U8, 0, NULL));
    FAILS(TIMEOUT, missing, collectives_barrier(comm, NULL));
  } else {
    collectives_work* work;  // rank 0, whose deadline is short, enters the call after the other ranks
    if (rank != 0) OK(collectives_barrier_async(comm, NULL, &work));
    OK(collectives_barrier(others, NULL));
    if (rank == 0) OK(collectives_barrier_async(comm, &soon, &work));
    FAILS(TIMEOUT, missing, collectives_work_wait(work));
    FAILS(TIMEOUT, missing, collectives_work_wait(work));
    collectives_work_free(work);
    OK(collectives_broadcast(starts, &go, &go, 1, COLLECTIVES_U8, 0, NULL));
  }
  CHECK(collectives_last_error_peer() == last);
  check_broken(comm, COLLECTIVES_ERROR_TIMEOUT);
  collectives_communicator_free(others);
  collectives_communicator_free(starts);
}

void AreToldWhoLeft(Comm* comm) {
  const int last = collectives_size(comm) - 1;
  Comm* part;
  OK(collectives_split(comm, 0, 0, NULL, &part));
  if (collectives_rank(comm) != last) {
    char left[100];
    snprintf(left, sizeof left, "rank %d was lost", last);
    FAILS(PEER_LOST, left, collectives_barrier(part, NULL));
    CHECK(collectives_last_error_peer() == last);
    check_broken(part, COLLECTIVES_ERROR_PEER_LOST);
  }
  collectives_communicator_free(part);
  OK(collectives_barrier(comm, NULL));  // the failed call does not affect this barrier
}

void AreToldWhyOneAborted(Comm* comm) {
  if (collectives_rank(comm) == 0) OK(collectives_abort(comm, "the loss is NaN"));
  FAILS(ABORTED, "the loss is NaN", collectives_barrier(comm, NULL));
  check_broken(comm, COLLECTIVES_ERROR_ABORTED);
}

void FreeInAnyOrder(Comm* comm) {
  Comm* part;
  OK(collectives_split(comm, 0, 0, NULL, &part));
  float* data = floats(1000000, 1);
  collectives_work *finished, *unfinished;
  collectives_memory* memory;
  OK(collectives_memory_allocate(part, 100, 0, &memory));
  OK(collectives_all_reduce_async(part, data, data, 10, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &finished));
  OK(collectives_work_wait(finished));
  OK(collectives_barrier(comm, NULL));  // after this barrier, `finished` is complete on all ranks
  OK(collectives_all_reduce_async(part, data, data, 1000000, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &unfinished));
  collectives_communicator_free(part);
  OK(collectives_work_wait(finished));
  const collectives_error end = collectives_work_wait(unfinished);
  CHECK(end == COLLECTIVES_SUCCESS || end == COLLECTIVES_ERROR_PEER_LOST);
  collectives_work_free(unfinished);
  collectives_work_free(finished);
  free(data);
  memset(collectives_memory_data(memory), 1, 100);
  collectives_memory_free(memory);
}

void ABadEnvironmentIsNamed(Comm* comm) {
  Comm* other = comm;
  setenv("RANK", "zero", 1);
  setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("MASTER_PORT", "1", 1);
  FAILS(BOOTSTRAP, "RANK", collectives_communicator_from_environment(NULL, &other));
  CHECK(other == NULL);
  setenv("RANK", "1", 1);
  const collectives_communicator_options soon = {.size = sizeof soon, .timeout_seconds = 0.1};
  CHECK(collectives_communicator_from_environment(&soon, &other) != COLLECTIVES_SUCCESS);
  CHECK(strstr(collectives_last_error(), "127.0.0.1") != NULL && other == NULL);
}

static void* fail_elsewhere(void* comm) {
  CHECK(strcmp(collectives_last_error(), "") == 0 && collectives_last_error_code() == COLLECTIVES_SUCCESS);
  CHECK(strcmp(collectives_last_error_operation(), "") == 0 && collectives_last_error_peer() == -1);
  INVALID("root 5", collectives_broadcast(comm, NULL, NULL, 0, COLLECTIVES_F32, 5, NULL));
  CHECK(collectives_last_error_rank() == 0 && strcmp(collectives_last_error_operation(), "broadcast #1") == 0);
  return NULL;
}

void EveryThreadHasItsLastError(Comm* comm) {
  INVALID("work is null", collectives_work_wait(NULL));
  const char* text = collectives_last_error();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_elsewhere, comm) == 0 && pthread_join(thread, NULL) == 0);
  OK(collectives_barrier(comm, NULL));
  CHECK(text == collectives_last_error() && strstr(text, "work is null") != NULL);
}

// ---- children made by fork() ----

void MayForkAChildThatMakesItsOwn(Comm* comm) {
#ifdef __SANITIZE_THREAD__
  (void)comm;
  return;  // children of a process with threads must not take a lock
#endif
  const int element = 1;
  int sum = 0;
  collectives_work* work;
  OK(collectives_all_reduce_async(comm, &element, &sum, 1, COLLECTIVES_I32, COLLECTIVES_SUM, NULL, &work));
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    const char* why = "from which this one was forked: a child makes its own";
    collectives_work* none;
    INVALID(why, collectives_barrier(comm, NULL));
    INVALID(why, collectives_barrier_async(comm, NULL, &none));
    INVALID(why, collectives_work_wait(work));
    collectives_abort(comm, "a child may not");
    collectives_work_free(work);
    collectives_communicator_free(comm);
    collectives_threads* threads;
    OK(collectives_threads_create(1, &threads));
    const collectives_communicator_options options = {.size = sizeof options, .progress_thread = COLLECTIVES_OFF};
    OK(collectives_communicator_from_threads(threads, 0, &options, &comm));
    OK(collectives_barrier(comm, NULL));
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  finish(work);
  CHECK(sum == collectives_size(comm));
  OK(collectives_barrier(comm, NULL));
}
