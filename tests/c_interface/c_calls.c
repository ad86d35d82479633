// Tests of the C interface: collectives, operations under way, groups, split, memory, plans and properties. Each test
// is a function, called a situation (c_interface_test.h), and all ranks run it.
#include <math.h>

#include "c_interface_test.h"

// ---- elements ----

// Stores a value as element i. All types hold the values of these tests exactly: they are small and not negative.
static void put(collectives_data_type type, void* list, size_t i, double value) {
  const float f = (float)value;
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  int exponent;
  const double fraction = frexp(value, &exponent);
  const int half = value == 0 ? 0 : ((exponent + 14) << 10) + (int)((fraction * 2 - 1) * 1024);
  switch (type) {
    case COLLECTIVES_F32: ((float*)list)[i] = f; return;
    case COLLECTIVES_F64: ((double*)list)[i] = value; return;
    case COLLECTIVES_F16: ((uint16_t*)list)[i] = (uint16_t)half; return;
    case COLLECTIVES_BF16: ((uint16_t*)list)[i] = (uint16_t)(bits >> 16); return;
    case COLLECTIVES_I8: ((int8_t*)list)[i] = (int8_t)value; return;
    case COLLECTIVES_U8: ((uint8_t*)list)[i] = (uint8_t)value; return;
    case COLLECTIVES_I32: ((int32_t*)list)[i] = (int32_t)value; return;
    case COLLECTIVES_U32: ((uint32_t*)list)[i] = (uint32_t)value; return;
    case COLLECTIVES_I64: ((int64_t*)list)[i] = (int64_t)value; return;
    case COLLECTIVES_U64: ((uint64_t*)list)[i] = (uint64_t)value; return;
    default: CHECK(0);
  }
}

// Returns whether element i is `value`.
static int holds(collectives_data_type type, const void* list, size_t i, double value) {
  uint64_t one = 0;
  put(type, &one, 0, value);
  return memcmp(&one, (const char*)list + i * collectives_size_of(type), collectives_size_of(type)) == 0;
}

void ReduceEveryTypeByEveryOp(Comm* comm) {
  const int p = collectives_size(comm);
  double sum = 0, product = 1;
  for (int r = 1; r <= p; ++r) sum += r, product *= r;
  for (int type = COLLECTIVES_F32; type <= COLLECTIVES_U64; ++type) {
    const int floating = type <= COLLECTIVES_BF16;
    for (int op = COLLECTIVES_SUM; op <= COLLECTIVES_PRE_SCALED_SUM; ++op) {
      const double results[] = {sum, floating ? sum / p : floor(sum / p), product, 1, p, sum / 2};
      const collectives_options options = {.size = sizeof options, .factor = 0.5};
      uint64_t mine[kCount], result[kCount];
      for (size_t i = 0; i < kCount; ++i) put((collectives_data_type)type, mine, i, collectives_rank(comm) + 1);
      if (op == COLLECTIVES_PRE_SCALED_SUM && !floating) {
        INVALID("has no pre_scaled_sum", collectives_all_reduce(comm, mine, result, kCount, (collectives_data_type)type,
                                                                COLLECTIVES_PRE_SCALED_SUM, &options));
        continue;
      }
      OK(collectives_all_reduce(comm, mine, result, kCount, (collectives_data_type)type, (collectives_op)op, &options));
      for (size_t i = 0; i < kCount; ++i) CHECK(holds((collectives_data_type)type, result, i, results[op]));
      check_same_everywhere(comm, result, kCount * collectives_size_of((collectives_data_type)type));
    }
  }
}

// Reduces one element of `type` over all ranks by `op`. All ranks must get the same bits.
static void reduce_one(Comm* comm, const void* mine, void* result, collectives_data_type type, collectives_op op) {
  const size_t bytes = collectives_size_of(type);
  memset(result, 0, bytes);
  OK(collectives_all_reduce(comm, mine, result, 1, type, op, NULL));
  check_same_everywhere(comm, result, bytes);
}

void ReduceBooleansBitsAndPairs(Comm* comm) {
  const int p = collectives_size(comm), rank = collectives_rank(comm);
  const _Bool last = rank == p - 1;
  _Bool truth;
  CHECK(collectives_size_of(COLLECTIVES_BOOLEAN) == sizeof truth);
  reduce_one(comm, &last, &truth, COLLECTIVES_BOOLEAN, COLLECTIVES_SUM);
  CHECK(truth);
  reduce_one(comm, &last, &truth, COLLECTIVES_BOOLEAN, COLLECTIVES_LOGICAL_AND);
  CHECK(truth == (p == 1));
  const uint8_t two = 2;
  uint8_t byte;
  reduce_one(comm, &two, &byte, COLLECTIVES_BOOLEAN, COLLECTIVES_BITWISE_OR);
  CHECK(byte == 1);
  INVALID("boolean has no average",
          collectives_all_reduce(comm, &two, &byte, 1, COLLECTIVES_BOOLEAN, COLLECTIVES_AVERAGE, NULL));

  const uint16_t bit = (uint16_t)(1 << rank);
  uint16_t bits;
  reduce_one(comm, &bit, &bits, COLLECTIVES_U16, COLLECTIVES_BITWISE_XOR);
  CHECK(bits == (1 << p) - 1);

  struct {
    double value;
    int32_t index;
  } pair, best;
  CHECK(collectives_size_of(COLLECTIVES_F64_INDEX) == sizeof pair);
  memset(&pair, 0, sizeof pair);
  pair.value = rank / 2;
  pair.index = 100 - rank;
  reduce_one(comm, &pair, &best, COLLECTIVES_F64_INDEX, COLLECTIVES_MIN_LOC);
  CHECK(best.value == 0 && best.index == (p > 1 ? 99 : 100));
  reduce_one(comm, &pair, &best, COLLECTIVES_F64_INDEX, COLLECTIVES_MAX_LOC);
  CHECK(best.value == (p - 1) / 2 && best.index == 100 - (p - 1));
  INVALID("f64_index has no sum",
          collectives_all_reduce(comm, &pair, &best, 1, COLLECTIVES_F64_INDEX, COLLECTIVES_SUM, NULL));
}

void ReduceComplexNumbersAndSmallFloats(Comm* comm) {
  const int p = collectives_size(comm);
  const float mine[2] = {1, 2};
  float result[2];
  CHECK(collectives_size_of(COLLECTIVES_COMPLEX64) == sizeof mine);
  reduce_one(comm, mine, result, COLLECTIVES_COMPLEX64, COLLECTIVES_SUM);
  CHECK(result[0] == (float)p && result[1] == (float)(2 * p));
  reduce_one(comm, mine, result, COLLECTIVES_COMPLEX64, COLLECTIVES_PRODUCT);
  float product[2] = {1, 0};
  for (int r = 0; r < p; ++r) {
    const float real = product[0];
    product[0] = real * mine[0] - product[1] * mine[1];
    product[1] = real * mine[1] + product[1] * mine[0];
  }
  CHECK(result[0] == product[0] && result[1] == product[1]);
  INVALID("complex64 has no max",
          collectives_all_reduce(comm, mine, result, 1, COLLECTIVES_COMPLEX64, COLLECTIVES_MAX, NULL));

  const uint8_t four = 0x48, most = 0x7e;  // 4 and 448 in f8e4m3
  uint8_t sum;
  reduce_one(comm, &four, &sum, COLLECTIVES_F8E4M3, COLLECTIVES_AVERAGE);
  CHECK(sum == four);
  reduce_one(comm, &most, &sum, COLLECTIVES_F8E4M3, COLLECTIVES_SUM);
  CHECK(sum == most);
}

void ScaleByNothing(Comm* comm) {
  const collectives_options options = {.size = sizeof options};
  float mine[kCount], result[kCount];
  for (size_t i = 0; i < kCount; ++i) mine[i] = (float)i;
  OK(collectives_all_reduce(comm, mine, result, kCount, COLLECTIVES_F32, COLLECTIVES_PRE_SCALED_SUM, &options));
  for (size_t i = 0; i < kCount; ++i) CHECK(result[i] == 0);
}

// ---- every collective ----

static void scatter_gather_and_broadcast(Comm* comm, int async) {
  const int rank = collectives_rank(comm);
  const size_t p = size_of(comm), self = (size_t)rank;
  const collectives_options options = {.size = sizeof options, .name = "tensor", .timeout_seconds = 60};
  collectives_work* work = NULL;
  float* whole = floats(p * kCount, 0);
  float* result = floats(p * kCount, -1);
  float part[kMost];
  size_t counts[kMost], total = 0, first = 0;
  for (size_t r = 0; r < p; ++r) {
    counts[r] = r % 3;  // ranks 0, 3, 6 ... have no elements
    if (r < self) first += counts[r];
    total += counts[r];
  }
  for (size_t i = 0; i < p * kCount; ++i) whole[i] = (float)i;
  const float ranks = (float)p;

  if (async) {
    OK(collectives_reduce_scatter_async(comm, whole, part, kCount, COLLECTIVES_F32, COLLECTIVES_SUM, &options, &work));
    finish(work);
  } else {
    OK(collectives_reduce_scatter(comm, whole, part, kCount, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  }
  for (size_t i = 0; i < kCount; ++i) CHECK(part[i] == ranks * (float)(self * kCount + i));

  if (async) {
    OK(collectives_reduce_scatter_v_async(comm, whole, part, counts, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &work));
    finish(work);
  } else {
    OK(collectives_reduce_scatter_v(comm, whole, part, counts, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  }
  for (size_t i = 0; i < counts[self]; ++i) CHECK(part[i] == ranks * (float)(first + i));

  if (async) {
    OK(collectives_all_gather_async(comm, whole + self * kCount, result, kCount, COLLECTIVES_F32, NULL, &work));
    finish(work);
  } else {
    OK(collectives_all_gather(comm, whole + self * kCount, result, kCount, COLLECTIVES_F32, NULL));
  }
  CHECK(memcmp(whole, result, p * kCount * sizeof(float)) == 0);

  for (size_t i = 0; i < p * kCount; ++i) result[i] = -1;
  if (async) {
    OK(collectives_all_gather_v_async(comm, whole + first, result, counts, COLLECTIVES_F32, NULL, &work));
    finish(work);
  } else {
    OK(collectives_all_gather_v(comm, whole + first, result, counts, COLLECTIVES_F32, NULL));
  }
  CHECK(memcmp(whole, result, total * sizeof(float)) == 0 && result[total] == -1);

  for (int root = 0; root < collectives_size(comm); ++root) {
    // In place at the root in every second turn. Other ranks pass no output.
    const int in_place = root % 2 == 0;
    float* target = in_place && rank == root ? whole : result;
    for (size_t i = 0; i < kCount; ++i) result[i] = -1;
    const float* source = rank == root ? whole : NULL;
    if (async) {
      OK(collectives_broadcast_async(comm, source, target, kCount, COLLECTIVES_F32, root, NULL, &work));
      finish(work);
    } else {
      OK(collectives_broadcast(comm, source, target, kCount, COLLECTIVES_F32, root, NULL));
    }
    CHECK(memcmp(whole, target, kCount * sizeof(float)) == 0);

    float* sum = rank == root ? part : NULL;
    if (async) {
      OK(collectives_reduce_async(comm, whole, sum, kCount, COLLECTIVES_F32, COLLECTIVES_SUM, root, NULL, &work));
      finish(work);
    } else {
      OK(collectives_reduce(comm, whole, sum, kCount, COLLECTIVES_F32, COLLECTIVES_SUM, root, NULL));
    }
    for (size_t i = 0; i < kCount && rank == root; ++i) CHECK(part[i] == ranks * (float)i);
  }

  if (async) {
    OK(collectives_barrier_async(comm, NULL, &work));
    finish(work);
  } else {
    OK(collectives_barrier(comm, NULL));
  }
  free(whole);
  free(result);
}

void ScatterGatherAndBroadcast(Comm* comm) {
  scatter_gather_and_broadcast(comm, 0);
  scatter_gather_and_broadcast(comm, 1);
}

void ScatterGatherAndBroadcastApart(Comm* comm) {
  ScatterGatherAndBroadcast(comm);
  CHECK(strstr(collectives_transport(comm), "tcp") != NULL);
  CHECK(collectives_bytes_sent_to_other_hosts(comm) > 0);
}

// ---- operations under way ----

static void send_and_receive(Comm* comm) {
  const int rank = collectives_rank(comm), p = collectives_size(comm), ahead = (rank + 1) % p,
            behind = (rank + p - 1) % p;
  const collectives_options options = {.size = sizeof options, .name = "pair", .timeout_seconds = 60};
  int32_t mine[kCount], theirs[kCount];
  int source = -5;
  for (int i = 0; i < kCount; ++i) mine[i] = 100 * rank + i;
  collectives_work *send = NULL, *receive = NULL;
  OK(collectives_recv_async(comm, theirs, kCount, COLLECTIVES_I32, COLLECTIVES_ANY_SOURCE, 3, &options, &receive));
  OK(collectives_work_source(receive, &source));
  CHECK(source == -1);
  OK(collectives_send_async(comm, mine, kCount, COLLECTIVES_I32, ahead, 3, NULL, &send));
  OK(collectives_work_wait(send));
  OK(collectives_work_wait(receive));
  OK(collectives_work_source(receive, &source));
  CHECK(source == behind);
  for (int i = 0; i < kCount; ++i) CHECK(theirs[i] == 100 * behind + i);
  collectives_work_free(send);
  collectives_work_free(receive);

  OK(collectives_sendrecv(comm, mine, kCount, behind, theirs, kCount, ahead, COLLECTIVES_I32, 4, NULL, &source));
  CHECK(source == ahead && theirs[1] == 100 * ahead + 1);
  OK(collectives_sendrecv_async(comm, mine, kCount, ahead, theirs, kCount, behind, COLLECTIVES_I32, 4, NULL, &receive));
  OK(collectives_work_wait(receive));
  OK(collectives_work_source(receive, &source));
  CHECK(source == behind && theirs[1] == 100 * behind + 1);
  collectives_work_free(receive);

  if (rank == 0) OK(collectives_send(comm, mine, kCount, COLLECTIVES_I32, p - 1, 5, &options));
  if (rank == p - 1) {
    OK(collectives_recv(comm, theirs, kCount, COLLECTIVES_I32, 0, 5, &options, NULL));
    CHECK(theirs[2] == 2);
  }
  INVALID("tag -1", collectives_send(comm, mine, kCount, COLLECTIVES_I32, 0, -1, NULL));
  INVALID("is not a rank", collectives_recv(comm, mine, kCount, COLLECTIVES_I32, p, 0, NULL, &source));
  INVALID("work is null", collectives_send_async(comm, mine, kCount, COLLECTIVES_I32, 0, 0, NULL, NULL));
}

void SendAndReceive(Comm* comm) { send_and_receive(comm); }
void SendAndReceiveApart(Comm* comm) { send_and_receive(comm); }

void OverlapOperations(Comm* comm) {
  enum { kOperations = 8 };
  collectives_work* works[kOperations];
  float* data[kOperations];
  for (size_t k = 0; k < kOperations; ++k) {
    data[k] = floats(k * 5000, 1);
    OK(collectives_all_reduce_async(comm, data[k], data[k], k * 5000, COLLECTIVES_F32, COLLECTIVES_SUM, NULL,
                                    &works[k]));
  }
  OK(collectives_progress(comm));
  for (int done = 0; !done;) OK(collectives_work_test(works[3], &done));
  for (size_t k = kOperations; k-- > 0;) {
    OK(collectives_work_wait(works[k]));
    OK(collectives_work_wait(works[k]));  // a second wait also succeeds
    int done = 0;
    OK(collectives_work_wait_for(works[k], 0, &done));
    CHECK(done == 1);
    for (size_t i = 0; i < k * 5000; ++i) CHECK(data[k][i] == (float)collectives_size(comm));
  }
  for (size_t k = 0; k < kOperations; ++k) {
    collectives_work_free(works[k]);
    free(data[k]);
  }
  // Freeing an operation also waits for it.
  float value = 1;
  collectives_work* work;
  OK(collectives_all_reduce_async(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &work));
  collectives_work_free(work);
  CHECK(value == (float)collectives_size(comm));
}

void WaitForALittleTellsWhetherItIsDone(Comm* comm) {
  Comm* starts = NULL;
  OK(collectives_split(comm, 0, 0, NULL, &starts));
  char go = 1;
  if (collectives_rank(comm) == 0) {
    collectives_work* work;
    int done = 1;
    OK(collectives_barrier_async(comm, NULL, &work));
    OK(collectives_work_wait_for(work, 0.01, &done));
    CHECK(done == 0);
    done = 1;
    OK(collectives_work_test(work, &done));
    CHECK(done == 0);
    OK(collectives_broadcast(starts, &go, &go, 1, COLLECTIVES_U8, 0, NULL));
    OK(collectives_work_wait_for(work, INFINITY, &done));
    CHECK(done == 1);
    INVALID("seconds is -1", collectives_work_wait_for(work, -1, &done));
    INVALID("seconds is nan", collectives_work_wait_for(work, NAN, &done));
    collectives_work_free(work);
  } else {
    OK(collectives_broadcast(starts, NULL, &go, 1, COLLECTIVES_U8, 0, NULL));
    OK(collectives_barrier(comm, NULL));
  }
  collectives_communicator_free(starts);
}

void RefuseAGroupThatOverlaps(Comm* comm) {
  collectives_group* group;
  OK(collectives_group_create(comm, &group));
  float data[10] = {0}, sum[10] = {0};
  OK(collectives_group_all_reduce(group, data, sum, 10, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_all_reduce(group, sum + 9, sum + 9, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  INVALID("the output of tensor 1 and the output of tensor 2 overlap in a group of 2 tensors",
          collectives_group_run(group));
  OK(collectives_group_run(group));  // the group is empty
  collectives_group_free(group);
}

void FuseAGroup(Comm* comm) {
  collectives_group* group;
  OK(collectives_group_create(comm, &group));
  float tensors[5][kCount];
  int32_t numbers[3] = {1, 2, 3};
  const float ranks = (float)collectives_size(comm);
  for (int turn = 0; turn < 2; ++turn) {
    for (size_t t = 0; t < 5; ++t) {
      for (size_t i = 0; i < kCount; ++i) tensors[t][i] = (float)t;
      OK(collectives_group_all_reduce(group, tensors[t], tensors[t], kCount, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
    }
    OK(collectives_group_all_reduce(group, numbers, numbers, 3, COLLECTIVES_I32, COLLECTIVES_MAX, NULL));
    if (turn == 0) {
      OK(collectives_group_run(group));
    } else {
      collectives_work* work;
      OK(collectives_group_run_async(group, &work));
      collectives_group_free(group);
      finish(work);
    }
    for (size_t t = 0; t < 5; ++t)
      for (size_t i = 0; i < kCount; ++i) CHECK(tensors[t][i] == ranks * (float)t);
    CHECK(numbers[2] == 3);
  }
}

void Split(Comm* comm) {
  const int rank = collectives_rank(comm), p = collectives_size(comm);
  const collectives_communicator_options ring = {.size = sizeof ring, .backend = "ring", .timeout_seconds = 60};
  Comm* part = NULL;
  OK(collectives_split(comm, rank % 2, -rank, &ring, &part));
  const int members = (p + 1 - rank % 2) / 2;
  CHECK(collectives_size(part) == members);
  CHECK(collectives_rank(part) == members - 1 - rank / 2);  // the keys reverse the order of the ranks
  int32_t sum = rank, expected = 0;
  for (int r = rank % 2; r < p; r += 2) expected += r;
  OK(collectives_all_reduce(part, &sum, &sum, 1, COLLECTIVES_I32, COLLECTIVES_SUM, NULL));
  CHECK(sum == expected);
  char* name = NULL;
  OK(collectives_plan_name(part, COLLECTIVES_ALL_REDUCE, 1000, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &name));
  CHECK(strstr(name, "ring") == name);
  collectives_free(name);
  collectives_communicator_free(part);

  OK(collectives_split(comm, rank == 0 ? -1 : 0, 0, NULL, &part));
  CHECK((part == NULL) == (rank == 0));
  if (part != NULL) CHECK(collectives_size(part) == p - 1);
  collectives_communicator_free(part);
}

void AllocateMemory(Comm* comm) {
  collectives_memory* memory;
  OK(collectives_memory_allocate(comm, 100000 * sizeof(float), 0, &memory));
  float* data = collectives_memory_data(memory);
  CHECK(collectives_memory_bytes(memory) == 100000 * sizeof(float));
  CHECK((uintptr_t)data % 64 == 0 && data[0] == 0 && data[99999] == 0);
  for (size_t i = 0; i < 100000; ++i) data[i] = (float)(i % 100);
  OK(collectives_all_reduce(comm, data, data, 100000, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  for (size_t i = 0; i < 100000; ++i) CHECK(data[i] == (float)(i % 100) * (float)collectives_size(comm));
  collectives_pages pages;
  char* text;
  OK(collectives_memory_pages(memory, &pages));
  OK(collectives_memory_describe(memory, &text));
  const char* names[] = {"huge_pages", "transparent_huge_pages", "small_pages", "private_pages"};
  CHECK(pages >= 0 && pages < 4 && strstr(text, names[pages]) != NULL);
  collectives_free(text);
  collectives_memory_free(memory);

  OK(collectives_memory_allocate(comm, 1, 4096, &memory));
  CHECK((uintptr_t)collectives_memory_data(memory) % 4096 == 0);
  collectives_memory_free(memory);
  OK(collectives_memory_allocate(comm, 0, 0, &memory));
  CHECK(collectives_memory_data(memory) == NULL && collectives_memory_bytes(memory) == 0);
  collectives_memory_free(memory);
  INVALID("alignment 24 is no power of two", collectives_memory_allocate(comm, 1, 24, &memory));
  CHECK(memory == NULL);
}

// The host has no GPU. Tests with fake GPUs cover calls on device memory.
void NoMemoryOfAGpu(Comm* comm) {
  float value;
  collectives_device_memory* memory;
  FAILS(UNSUPPORTED, "takes no device buffers", collectives_device_memory_allocate(comm, 1, &memory));
  CHECK(memory == NULL);
  FAILS(UNSUPPORTED, "register_memory: rank ", collectives_device_memory_register(comm, &value, sizeof value, &memory));
  CHECK(memory == NULL);
  OK(collectives_barrier(comm, NULL));
  collectives_device_memory_free(memory);
}

// ---- properties ----

void ExplainThePlan(Comm* comm) {
  const collectives_options ring = {.size = sizeof ring, .backend = "ring", .deterministic = COLLECTIVES_OFF};
  for (int collective = COLLECTIVES_ALL_REDUCE; collective <= COLLECTIVES_BARRIER; ++collective) {
    char *text = NULL, *name = NULL;
    OK(collectives_explain(comm, (collectives_collective)collective, 1000, COLLECTIVES_F64, COLLECTIVES_SUM, NULL,
                           &text));
    OK(collectives_plan_name(comm, (collectives_collective)collective, 1000, COLLECTIVES_F64, COLLECTIVES_SUM, NULL,
                             &name));
    CHECK(strlen(text) > 40 && strlen(name) > 3);
    collectives_free(text);
    collectives_free(name);
  }
  char* text;
  OK(collectives_explain(comm, COLLECTIVES_ALL_REDUCE, 1 << 20, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &ring, &text));
  CHECK(strstr(text, "all_reduce") != NULL && strstr(text, "ring") != NULL && strstr(text, "average") != NULL);
  collectives_free(text);
}

void TellTheirProperties(Comm* comm) {
  CHECK(strcmp(collectives_version(), COLLECTIVES_VERSION_EXPECTED) == 0);
  CHECK(collectives_rank(comm) >= 0 && collectives_rank(comm) < collectives_size(comm));
  CHECK(strcmp(collectives_transport(comm), "shared_memory") == 0 || strcmp(collectives_transport(comm), "local") == 0);
  const uint64_t before = collectives_bytes_sent(comm);
  float data[kCount] = {0};
  OK(collectives_all_reduce(comm, data, data, kCount, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  if (collectives_size(comm) > 1) CHECK(collectives_bytes_sent(comm) >= before + sizeof data);
  CHECK(collectives_bytes_sent_to_other_hosts(comm) == 0);
  CHECK(collectives_size_of(COLLECTIVES_BF16) == 2 && collectives_size_of(COLLECTIVES_U64) == 8);
  CHECK(collectives_size_of((collectives_data_type)77) == 0);
  const char* names[] = {"success",   "invalid_argument", "unsupported", "mismatch", "timeout",
                         "peer_lost", "aborted",          "bootstrap",   "system",   "unknown error"};
  for (int e = 0; e < 10; ++e) CHECK(strcmp(collectives_error_name((collectives_error)e), names[e]) == 0);
  CHECK(strcmp(collectives_error_name((collectives_error)257), "unknown error") == 0);
}

void TakeNothing(Comm* comm) {
  size_t counts[kMost] = {0};
  for (int turn = 0; turn < 2; ++turn) {
    OK(collectives_all_reduce(comm, NULL, NULL, 0, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
    OK(collectives_reduce_scatter(comm, NULL, NULL, 0, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
    OK(collectives_reduce_scatter_v(comm, NULL, NULL, counts, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
    OK(collectives_all_gather(comm, NULL, NULL, 0, COLLECTIVES_F32, NULL));
    OK(collectives_all_gather_v(comm, NULL, NULL, counts, COLLECTIVES_F32, NULL));
    OK(collectives_broadcast(comm, NULL, NULL, 0, COLLECTIVES_F32, 0, NULL));
    OK(collectives_reduce(comm, NULL, NULL, 0, COLLECTIVES_F32, COLLECTIVES_SUM, 0, NULL));
  }
}
