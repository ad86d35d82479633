// The C interface, from C99: each situation is a function that every rank runs on a communicator.
//
//   c_interface_test SITUATION             ranks are processes, of collectives_run, say, or this one alone
//   c_interface_test SITUATION THREADS     ranks are threads of this process
#define _POSIX_C_SOURCE 200809L  // setenv, pthread, fork

#include <collectives/collectives.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef collectives_communicator Comm;

// Name, the least number of ranks, and where these are: together on a host; apart, each on a host of its own, as far as
// the library knows; alone, one process that no launcher started. CMakeLists.txt reads this list.
#define SITUATIONS(S)                                \
  S(ReduceEveryTypeByEveryOp, 1, together)           \
  S(ScaleByNothing, 1, together)                     \
  S(ScatterGatherAndBroadcast, 1, together)          \
  S(ScatterGatherAndBroadcastApart, 2, apart)        \
  S(OverlapOperations, 1, together)                  \
  S(WaitForALittleTellsWhetherItIsDone, 2, together) \
  S(FuseAGroup, 1, together)                         \
  S(Split, 1, together)                              \
  S(AllocateMemory, 1, together)                     \
  S(NoMemoryOfAGpu, 1, together)                     \
  S(ApplyAnOpOfTheirOwn, 1, together)                \
  S(SendBf16, 2, apart)                              \
  S(SendByACodecOfTheirOwn, 2, apart)                \
  S(ChooseTopKAndGoOnFromACheckpoint, 2, apart)      \
  S(ExplainThePlan, 1, together)                     \
  S(TellTheirProperties, 1, together)                \
  S(TakeNothing, 1, together)                        \
  S(AreToldWhoDisagrees, 2, together)                \
  S(AreToldWhoIsMissing, 2, together)                \
  S(AreToldWhoLeft, 2, together)                     \
  S(AreToldWhyOneAborted, 1, together)               \
  S(FreeInAnyOrder, 1, together)                     \
  S(MayForkAChildThatMakesItsOwn, 1, together)       \
  S(NullIsRefused, 1, alone)                         \
  S(WrongArgumentsAreRefused, 1, alone)              \
  S(WrongOptionsAreRefused, 1, alone)                \
  S(StructsOfOtherVersionsAreUnderstood, 1, alone)   \
  S(TooMuchMemoryIsRefused, 1, alone)                \
  S(ABadEnvironmentIsNamed, 1, alone)                \
  S(EveryThreadHasItsLastError, 1, alone)            \
  S(RanksMayBeThreads, 1, alone)

#define CHECK(condition)                                                                                    \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s: not so: %s (last error: %s)\n", __FILE__, __LINE__, __func__, #condition, \
              collectives_last_error());                                                                    \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define OK(call) CHECK((call) == COLLECTIVES_SUCCESS)
// That `call` fails with COLLECTIVES_ERROR_`code`, and `text` is in what is said of it.
#define FAILS(code, text, call)                                       \
  do {                                                                \
    CHECK((call) == COLLECTIVES_ERROR_##code);                        \
    CHECK(collectives_last_error_code() == COLLECTIVES_ERROR_##code); \
    CHECK(strstr(collectives_last_error(), text) != NULL);            \
    CHECK(strchr(collectives_last_error(), '\n') == NULL);            \
  } while (0)
#define INVALID(text, call) FAILS(INVALID_ARGUMENT, text, call)

enum { kCount = 37, kMost = 1000 };

static size_t size_of(const Comm* comm) { return (size_t)collectives_size(comm); }

static float* floats(size_t count, float value) {
  float* list = malloc((count + 1) * sizeof *list);
  CHECK(list != NULL);
  for (size_t i = 0; i < count; ++i) list[i] = value;
  return list;
}

// Waits for an operation that may not fail, and frees it.
static void finish(collectives_work* work) {
  OK(collectives_work_wait(work));
  collectives_work_free(work);
}

// Fails unless all ranks hold the same bytes.
static void check_same_everywhere(Comm* comm, const void* bytes, size_t count) {
  char* all = malloc(count * size_of(comm));
  OK(collectives_all_gather(comm, bytes, all, count, COLLECTIVES_U8, NULL));
  for (size_t r = 0; r < size_of(comm); ++r) CHECK(memcmp(all + r * count, bytes, count) == 0);
  free(all);
}

// ---- elements ----

// Values that all types hold exactly: not many, not large, not negative.
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
  }
}

// Whether element i is `value`.
static int holds(collectives_data_type type, const void* list, size_t i, double value) {
  uint64_t one = 0;
  put(type, &one, 0, value);
  return memcmp(&one, (const char*)list + i * collectives_size_of(type), collectives_size_of(type)) == 0;
}

static void ReduceEveryTypeByEveryOp(Comm* comm) {
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

static void ScaleByNothing(Comm* comm) {
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
    counts[r] = r % 3;  // nothing of rank 0
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
    // In place at the root in every other turn; the others give nothing.
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

static void ScatterGatherAndBroadcast(Comm* comm) {
  scatter_gather_and_broadcast(comm, 0);
  scatter_gather_and_broadcast(comm, 1);
}

static void ScatterGatherAndBroadcastApart(Comm* comm) {
  ScatterGatherAndBroadcast(comm);
  CHECK(strstr(collectives_transport(comm), "tcp") != NULL);
  CHECK(collectives_bytes_sent_to_other_hosts(comm) > 0);
}

// ---- operations under way ----

static void OverlapOperations(Comm* comm) {
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
    OK(collectives_work_wait(works[k]));  // and again
    int done = 0;
    OK(collectives_work_wait_for(works[k], 0, &done));
    CHECK(done == 1);
    for (size_t i = 0; i < k * 5000; ++i) CHECK(data[k][i] == (float)collectives_size(comm));
  }
  for (size_t k = 0; k < kOperations; ++k) {
    collectives_work_free(works[k]);
    free(data[k]);
  }
  // Freeing is waiting, too.
  float value = 1;
  collectives_work* work;
  OK(collectives_all_reduce_async(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &work));
  collectives_work_free(work);
  CHECK(value == (float)collectives_size(comm));
}

static void WaitForALittleTellsWhetherItIsDone(Comm* comm) {
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

static void FuseAGroup(Comm* comm) {
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

static void Split(Comm* comm) {
  const int rank = collectives_rank(comm), p = collectives_size(comm);
  const collectives_communicator_options ring = {.size = sizeof ring, .backend = "ring", .timeout_seconds = 60};
  Comm* part = NULL;
  OK(collectives_split(comm, rank % 2, -rank, &ring, &part));
  const int members = (p + 1 - rank % 2) / 2;
  CHECK(collectives_size(part) == members);
  CHECK(collectives_rank(part) == members - 1 - rank / 2);  // the last first
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

static void AllocateMemory(Comm* comm) {
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

// There is no GPU here; what there is with one is for tests that pretend to have one.
static void NoMemoryOfAGpu(Comm* comm) {
  float value;
  collectives_device_memory* memory;
  FAILS(UNSUPPORTED, "takes no device buffers", collectives_device_memory_allocate(comm, 1, &memory));
  CHECK(memory == NULL);
  FAILS(UNSUPPORTED, "register_memory: rank ", collectives_device_memory_register(comm, &value, sizeof value, &memory));
  CHECK(memory == NULL);
  OK(collectives_barrier(comm, NULL));
  collectives_device_memory_free(memory);
}

// ---- what programs bring ----

// An element is a map x -> a x + b, with a in its upper half and b in its lower; next comes after accumulated. That is
// associative, and the order counts.
static uint64_t map_of(uint64_t a, uint64_t b) { return a << 32 | b; }
static uint64_t composed(uint64_t after, uint64_t map) {
  const uint64_t a = after >> 32, b = after & UINT32_MAX;
  return map_of(a * (map >> 32), a * (map & UINT32_MAX) + b);
}
static void compose(void* context, const void* next, void* accumulated, size_t count, collectives_data_type type) {
  const uint64_t* after = next;
  uint64_t* maps = accumulated;
  CHECK(type == COLLECTIVES_U64 && *(int*)context == 17);
  for (size_t i = 0; i < count; ++i) maps[i] = composed(after[i], maps[i]);
}

static void keep_the_larger(void* context, const void* next, void* accumulated, size_t count,
                            collectives_data_type type) {
  const int64_t* theirs = next;
  int64_t* mine = accumulated;
  CHECK(context == NULL && type == COLLECTIVES_I64);
  for (size_t i = 0; i < count; ++i)
    if (theirs[i] > mine[i]) mine[i] = theirs[i];
}

static void ApplyAnOpOfTheirOwn(Comm* comm) {
  int context = 17;
  const int rank = collectives_rank(comm), p = collectives_size(comm);
  collectives_user_op* op;
  OK(collectives_user_op_create("compose", compose, &context, 0, &op));
  collectives_options options = {.size = sizeof options, .user_op = op};
  for (int ring = 0; ring < 2; ++ring) {
    options.backend = ring ? "ring" : NULL;
    uint64_t maps[kCount];
    for (uint64_t i = 0; i < kCount; ++i) maps[i] = map_of((uint64_t)rank + 2, i);
    OK(collectives_all_reduce(comm, maps, maps, kCount, COLLECTIVES_U64, COLLECTIVES_USER_OP, &options));
    for (uint64_t i = 0; i < kCount; ++i) {
      uint64_t expected = map_of(2, i);
      for (uint64_t r = 1; r < size_of(comm); ++r) expected = composed(map_of(r + 2, i), expected);
      CHECK(maps[i] == expected);
    }
  }
  collectives_user_op_free(op);

  OK(collectives_user_op_create("larger", keep_the_larger, NULL, 1, &op));
  options.user_op = op;
  int64_t values[kCount];
  for (int i = 0; i < kCount; ++i) values[i] = i % p == rank ? i : -i;
  collectives_work* work;
  OK(collectives_all_reduce_async(comm, values, values, kCount, COLLECTIVES_I64, COLLECTIVES_USER_OP, &options, &work));
  finish(work);
  for (int i = 0; i < kCount; ++i) CHECK(values[i] == i);
  collectives_user_op_free(op);
}

// What a coded sum of 1000 values from 1 to 2 is off by at most, relatively; that all ranks agree, and what was saved.
static void check_coded(Comm* comm, const collectives_options* options, double error, double saved) {
  enum { kValues = 1000 };
  const float ranks = (float)collectives_size(comm);
  float mine[kValues], sum[kValues];
  for (size_t i = 0; i < kValues; ++i) mine[i] = 1 + (float)i / kValues;
  collectives_coding_report before = {.size = sizeof before}, after = before;
  OK(collectives_coding(comm, &before));
  OK(collectives_all_reduce(comm, mine, sum, kValues, COLLECTIVES_F32, COLLECTIVES_SUM, options));
  OK(collectives_coding(comm, &after));
  double worst = 0;
  for (size_t i = 0; i < kValues; ++i) worst = fmax(worst, fabs(sum[i] / (ranks * mine[i]) - 1));
  CHECK(worst > 0 && worst <= error);
  check_same_everywhere(comm, sum, sizeof sum);
  const double raw = (double)(after.raw_bytes - before.raw_bytes),
               sent = (double)(after.sent_bytes - before.sent_bytes);
  CHECK(sent > 0 && raw / sent >= saved);
  CHECK(after.seconds >= before.seconds);
}

static void SendBf16(Comm* comm) {
  collectives_options options = {.size = sizeof options, .wire = "bf16", .force = COLLECTIVES_ON};
  check_coded(comm, &options, 2.0 / 256, 2);
  options.wire = "f16";
  check_coded(comm, &options, 2.0 / 2048, 2);
  options.wire = "int8";
  check_coded(comm, &options, 4.0 / 254, 3.9);
  options.wire = "f32";  // as they are
  float value = 1;
  OK(collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  options.wire = "bf17";
  INVALID("unknown wire \"bf17\"; known: f32, bf16, f16, int8",
          collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  options.wire = "i8";
  INVALID("nothing travels as i8",
          collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
}

// The upper half of each f32, as it is.
static size_t halves_bytes(void* context, size_t count) {
  CHECK(*(int*)context == 19);
  return 2 * count;
}
static void halves_encode(void* context, const float* values, size_t count, void* bytes) {
  CHECK(*(int*)context == 19);
  for (size_t i = 0; i < count; ++i) memcpy((char*)bytes + 2 * i, (const char*)(values + i) + 2, 2);
}
static void halves_decode(void* context, const void* bytes, float* values, size_t count) {
  CHECK(*(int*)context == 19);
  for (size_t i = 0; i < count; ++i) {
    values[i] = 0;
    memcpy((char*)(values + i) + 2, (const char*)bytes + 2 * i, 2);
  }
}

static void SendByACodecOfTheirOwn(Comm* comm) {
  int context = 19;
  char name[] = "halves";
  const collectives_codec_functions functions = {.size = sizeof functions,
                                                 .name = name,
                                                 .context = &context,
                                                 .encoded_bytes = halves_bytes,
                                                 .encode = halves_encode,
                                                 .decode = halves_decode};
  collectives_codec* codec;
  OK(collectives_codec_create(&functions, &codec));
  memset(name, 'x', sizeof name - 1);  // it has its own
  collectives_options options = {.size = sizeof options, .codec = codec, .force = COLLECTIVES_ON};
  check_coded(comm, &options, 2.0 / 128, 2);
  char* text;
  OK(collectives_explain(comm, COLLECTIVES_ALL_REDUCE, 1000, COLLECTIVES_F32, COLLECTIVES_SUM, &options, &text));
  CHECK(strstr(text, "halves") != NULL);
  collectives_free(text);
  options.wire = "bf16";
  float value = 1;
  INVALID("both a wire and a codec",
          collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  OK(collectives_barrier(comm, NULL));
  collectives_codec_free(codec);
}

static void fill_gradient(const Comm* comm, float* gradient, size_t count, size_t step) {
  for (size_t i = 0; i < count; ++i)
    gradient[i] = (float)((i * 7919 + step * 104729 + (size_t)collectives_rank(comm) * 31) % 1009) - 504;
}

static void ChooseTopKAndGoOnFromACheckpoint(Comm* comm) {
  enum { kElements = 2000, kChosen = 20 };
  const size_t p = size_of(comm);
  const collectives_top_k_options how = {.size = sizeof how, .k = kChosen, .momentum = 0.5};
  collectives_top_k *top_k, *loaded;
  OK(collectives_top_k_create(&how, &top_k));
  OK(collectives_top_k_create(&how, &loaded));
  collectives_options options = {.size = sizeof options, .name = "fc1", .compressor = top_k, .force = COLLECTIVES_ON};
  float gradient[kElements], sum[kElements], again[kElements];
  for (size_t step = 0; step < 3; ++step) {
    fill_gradient(comm, gradient, kElements, step);
    OK(collectives_all_reduce(comm, gradient, sum, kElements, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &options));
    check_same_everywhere(comm, sum, sizeof sum);
  }
  size_t not_zero = 0;
  for (size_t i = 0; i < kElements; ++i) not_zero += sum[i] != 0;
  CHECK(not_zero >= kChosen && not_zero <= kChosen * p);

  collectives_top_k_report report = {.size = sizeof report};
  OK(collectives_top_k_get_report(top_k, "fc1", &report));
  CHECK(report.size == sizeof report && report.calls == 3 && report.sparse == 1 && report.count == kElements);
  CHECK(report.chosen == kChosen && report.united >= kChosen && report.sent_bytes < report.raw_bytes);
  CHECK(strlen(report.reason) > 0 && report.residual_norm > 0 && report.relative_error > 0);
  INVALID("no tensor \"fc2\"", collectives_top_k_get_report(top_k, "fc2", &report));

  // What everybody has saved, brought to everybody.
  void* mine;
  size_t bytes, all_bytes[kMost], total = 0;
  OK(collectives_top_k_save(top_k, &mine, &bytes));
  uint64_t my_bytes = bytes, lengths[kMost];
  OK(collectives_all_gather(comm, &my_bytes, lengths, 1, COLLECTIVES_U64, NULL));
  for (size_t r = 0; r < p; ++r) total += all_bytes[r] = (size_t)lengths[r];
  char* everything = malloc(total);
  OK(collectives_all_gather_v(comm, mine, everything, all_bytes, COLLECTIVES_U8, NULL));
  const void* states[kMost];
  for (size_t r = 0, at = 0; r < p; at += all_bytes[r++]) states[r] = everything + at;
  OK(collectives_top_k_load(loaded, states, all_bytes, p, collectives_rank(comm), collectives_size(comm)));

  fill_gradient(comm, gradient, kElements, 3);
  OK(collectives_all_reduce(comm, gradient, sum, kElements, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &options));
  options.compressor = loaded;
  collectives_work* work;
  OK(collectives_all_reduce_async(comm, gradient, again, kElements, COLLECTIVES_F32, COLLECTIVES_AVERAGE, &options,
                                  &work));
  finish(work);
  CHECK(memcmp(sum, again, sizeof sum) == 0);

  collectives_top_k* fresh;
  OK(collectives_top_k_create(NULL, &fresh));
  OK(collectives_top_k_load(fresh, states, all_bytes, p, 0, 1));  // one rank takes over from all
  INVALID("a saved state", collectives_top_k_load(fresh, states, &(size_t){3}, 1, 0, 1));
  INVALID("a state is null", collectives_top_k_load(fresh, &(const void*){NULL}, &(size_t){3}, 1, 0, 1));
  INVALID("rank 2 of 2", collectives_top_k_load(fresh, states, all_bytes, p, 2, 2));
  collectives_top_k_free(fresh);
  options.name = NULL;
  INVALID("needs the tensor's name",
          collectives_all_reduce(comm, gradient, sum, kElements, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  OK(collectives_barrier(comm, NULL));
  free(everything);
  collectives_free(mine);
  collectives_top_k_free(loaded);
  collectives_top_k_free(top_k);
}

// ---- what can be asked ----

static void ExplainThePlan(Comm* comm) {
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

static void TellTheirProperties(Comm* comm) {
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

static void TakeNothing(Comm* comm) {
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

// ---- errors that all ranks hear of ----

// What is left of a communicator after an error: the same error, properties, explain(), abort(), its end.
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
  CHECK(strcmp(text, collectives_last_error()) == 0);  // what succeeds does not change it
  OK(collectives_abort(comm, "too late"));
}

static void AreToldWhoDisagrees(Comm* comm) {
  const int last = collectives_size(comm) - 1;
  const size_t count = collectives_rank(comm) == last ? 11 : 10;
  const collectives_options options = {.size = sizeof options, .name = "weights"};
  float data[kCount] = {0};
  collectives_error error = collectives_all_reduce(comm, data, data, count, COLLECTIVES_F32, COLLECTIVES_SUM, &options);
  if (error == COLLECTIVES_SUCCESS) error = collectives_barrier(comm, NULL);  // who got through hears of it now
  CHECK(error == COLLECTIVES_ERROR_MISMATCH);
  char odd[100];
  snprintf(odd, sizeof odd, "rank %d passed 11 x f32", last);
  CHECK(strstr(collectives_last_error(), odd) != NULL);
  CHECK(strstr(collectives_last_error(), "passed 10 x f32") != NULL);
  CHECK(strstr(collectives_last_error_operation(), "all_reduce #") != NULL);
  CHECK(collectives_last_error_rank() == collectives_rank(comm));
  check_broken(comm, COLLECTIVES_ERROR_MISMATCH);
}

static void AreToldWhoIsMissing(Comm* comm) {
  const int rank = collectives_rank(comm), last = collectives_size(comm) - 1;
  Comm *starts, *others;
  OK(collectives_split(comm, 0, 0, NULL, &starts));
  OK(collectives_split(comm, rank == last ? -1 : 0, 0, NULL, &others));
  const collectives_options soon = {.size = sizeof soon, .timeout_seconds = 0.2};
  char missing[100];
  snprintf(missing, sizeof missing, "rank %d has not arrived", last);
  char go = 1;
  if (rank == last) {  // comes when all others have given up
    OK(collectives_broadcast(starts, NULL, &go, 1, COLLECTIVES_U8, 0, NULL));
    FAILS(TIMEOUT, missing, collectives_barrier(comm, NULL));
  } else {
    collectives_work* work;  // rank 0, whose deadline it is, comes when the rest are there
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

static void AreToldWhoLeft(Comm* comm) {
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
  OK(collectives_barrier(comm, NULL));  // not this one
}

static void AreToldWhyOneAborted(Comm* comm) {
  if (collectives_rank(comm) == 0) OK(collectives_abort(comm, "the loss is NaN"));
  FAILS(ABORTED, "the loss is NaN", collectives_barrier(comm, NULL));
  check_broken(comm, COLLECTIVES_ERROR_ABORTED);
}

static void FreeInAnyOrder(Comm* comm) {
  Comm* part;
  OK(collectives_split(comm, 0, 0, NULL, &part));
  float* data = floats(1000000, 1);
  collectives_work *finished, *unfinished;
  collectives_memory* memory;
  OK(collectives_memory_allocate(part, 100, 0, &memory));
  OK(collectives_all_reduce_async(part, data, data, 10, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &finished));
  OK(collectives_work_wait(finished));
  OK(collectives_barrier(comm, NULL));  // it is finished everywhere
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

// ---- what one rank is refused ----

static void NullIsRefused(Comm* comm) {
  collectives_free(NULL);
  collectives_communicator_free(NULL);
  collectives_threads_free(NULL);
  collectives_work_free(NULL);
  collectives_group_free(NULL);
  collectives_memory_free(NULL);
  collectives_user_op_free(NULL);
  collectives_codec_free(NULL);
  collectives_top_k_free(NULL);

  const collectives_data_type f32 = COLLECTIVES_F32;
  const collectives_op sum = COLLECTIVES_SUM;
  float data[2] = {0};
  size_t counts[1] = {1}, bytes;
  int done;
  void* state;
  char* text;
  Comm* other;
  collectives_work* work;
  collectives_group* group;
  collectives_memory* memory;
  collectives_pages pages;
  collectives_threads* threads;
  collectives_top_k* top_k;
  collectives_user_op* op;
  collectives_codec* codec;
  collectives_coding_report coding = {.size = sizeof coding};
  collectives_top_k_report report = {.size = sizeof report};

  CHECK(collectives_rank(NULL) == -1 && collectives_size(NULL) == -1 && collectives_transport(NULL) == NULL);
  CHECK(strcmp(collectives_last_error(), "collectives_transport: comm is null") == 0);
  CHECK(collectives_bytes_sent(NULL) == 0 && collectives_bytes_sent_to_other_hosts(NULL) == 0);
  CHECK(collectives_memory_data(NULL) == NULL && collectives_memory_bytes(NULL) == 0);
  CHECK(strcmp(collectives_last_error(), "collectives_memory_bytes: memory is null") == 0);

  INVALID("collectives_communicator_from_environment: comm is null",
          collectives_communicator_from_environment(NULL, NULL));
  INVALID("threads is null", collectives_threads_create(1, NULL));
  INVALID("threads is null", collectives_communicator_from_threads(NULL, 0, NULL, &other));
  CHECK(other == NULL);
  OK(collectives_threads_create(1, &threads));
  INVALID("comm is null", collectives_communicator_from_threads(threads, 0, NULL, NULL));
  collectives_threads_free(threads);
  INVALID("comm is null", collectives_split(NULL, 0, 0, NULL, &other));
  INVALID("part is null", collectives_split(comm, 0, 0, NULL, NULL));
  INVALID("comm is null", collectives_coding(NULL, &coding));
  INVALID("report is null", collectives_coding(comm, NULL));
  INVALID("comm is null", collectives_abort(NULL, "reason"));
  INVALID("reason is null", collectives_abort(comm, NULL));
  INVALID("comm is null", collectives_progress(NULL));
  INVALID("comm is null", collectives_explain(NULL, COLLECTIVES_BARRIER, 0, f32, sum, NULL, &text));
  CHECK(text == NULL);
  INVALID("text is null", collectives_explain(comm, COLLECTIVES_BARRIER, 0, f32, sum, NULL, NULL));
  INVALID("comm is null", collectives_plan_name(NULL, COLLECTIVES_BARRIER, 0, f32, sum, NULL, &text));
  INVALID("name is null", collectives_plan_name(comm, COLLECTIVES_BARRIER, 0, f32, sum, NULL, NULL));

  INVALID("comm is null", collectives_all_reduce(NULL, data, data, 1, f32, sum, NULL));
  INVALID("comm is null", collectives_reduce_scatter(NULL, data, data, 1, f32, sum, NULL));
  INVALID("comm is null", collectives_reduce_scatter_v(NULL, data, data, counts, f32, sum, NULL));
  INVALID("counts is null", collectives_reduce_scatter_v(comm, data, data, NULL, f32, sum, NULL));
  INVALID("comm is null", collectives_all_gather(NULL, data, data, 1, f32, NULL));
  INVALID("comm is null", collectives_all_gather_v(NULL, data, data, counts, f32, NULL));
  INVALID("counts is null", collectives_all_gather_v(comm, data, data, NULL, f32, NULL));
  INVALID("comm is null", collectives_broadcast(NULL, data, data, 1, f32, 0, NULL));
  INVALID("comm is null", collectives_reduce(NULL, data, data, 1, f32, sum, 0, NULL));
  INVALID("comm is null", collectives_barrier(NULL, NULL));
  INVALID("comm is null", collectives_all_reduce_async(NULL, data, data, 1, f32, sum, NULL, &work));
  CHECK(work == NULL);
  INVALID("comm is null", collectives_reduce_scatter_async(NULL, data, data, 1, f32, sum, NULL, &work));
  INVALID("comm is null", collectives_reduce_scatter_v_async(NULL, data, data, counts, f32, sum, NULL, &work));
  INVALID("comm is null", collectives_all_gather_async(NULL, data, data, 1, f32, NULL, &work));
  INVALID("comm is null", collectives_all_gather_v_async(NULL, data, data, counts, f32, NULL, &work));
  INVALID("comm is null", collectives_broadcast_async(NULL, data, data, 1, f32, 0, NULL, &work));
  INVALID("comm is null", collectives_reduce_async(NULL, data, data, 1, f32, sum, 0, NULL, &work));
  INVALID("comm is null", collectives_barrier_async(NULL, NULL, &work));
  INVALID("work is null", collectives_all_reduce_async(comm, data, data, 1, f32, sum, NULL, NULL));
  INVALID("work is null", collectives_reduce_scatter_async(comm, data, data, 1, f32, sum, NULL, NULL));
  INVALID("work is null", collectives_reduce_scatter_v_async(comm, data, data, counts, f32, sum, NULL, NULL));
  INVALID("counts is null", collectives_reduce_scatter_v_async(comm, data, data, NULL, f32, sum, NULL, &work));
  INVALID("work is null", collectives_all_gather_async(comm, data, data, 1, f32, NULL, NULL));
  INVALID("work is null", collectives_all_gather_v_async(comm, data, data, counts, f32, NULL, NULL));
  INVALID("counts is null", collectives_all_gather_v_async(comm, data, data, NULL, f32, NULL, &work));
  INVALID("work is null", collectives_broadcast_async(comm, data, data, 1, f32, 0, NULL, NULL));
  INVALID("work is null", collectives_reduce_async(comm, data, data, 1, f32, sum, 0, NULL, NULL));
  INVALID("work is null", collectives_barrier_async(comm, NULL, NULL));
  INVALID("input is null with 1 elements", collectives_all_reduce(comm, NULL, data, 1, f32, sum, NULL));
  INVALID("output is null with 1 elements", collectives_all_reduce(comm, data, NULL, 1, f32, sum, NULL));
  INVALID("output is null", collectives_reduce(comm, data, NULL, 1, f32, sum, 0, NULL));
  INVALID("input is null", collectives_broadcast(comm, NULL, data, 1, f32, 0, NULL));

  INVALID("work is null", collectives_work_wait(NULL));
  INVALID("work is null", collectives_work_wait_for(NULL, 0, &done));
  INVALID("work is null", collectives_work_test(NULL, &done));
  OK(collectives_barrier_async(comm, NULL, &work));
  INVALID("done is null", collectives_work_wait_for(work, 0, NULL));
  INVALID("done is null", collectives_work_test(work, NULL));
  collectives_work_free(work);

  INVALID("comm is null", collectives_group_create(NULL, &group));
  INVALID("group is null", collectives_group_create(comm, NULL));
  INVALID("group is null", collectives_group_all_reduce(NULL, data, data, 1, f32, sum, NULL));
  INVALID("group is null", collectives_group_run(NULL));
  INVALID("group is null", collectives_group_run_async(NULL, &work));
  OK(collectives_group_create(comm, &group));
  INVALID("input is null", collectives_group_all_reduce(group, NULL, data, 1, f32, sum, NULL));
  INVALID("work is null", collectives_group_run_async(group, NULL));
  collectives_group_free(group);

  INVALID("comm is null", collectives_memory_allocate(NULL, 1, 0, &memory));
  INVALID("memory is null", collectives_memory_allocate(comm, 1, 0, NULL));
  INVALID("memory is null", collectives_memory_pages(NULL, &pages));
  INVALID("memory is null", collectives_memory_describe(NULL, &text));
  OK(collectives_memory_allocate(comm, 1, 0, &memory));
  INVALID("pages is null", collectives_memory_pages(memory, NULL));
  INVALID("text is null", collectives_memory_describe(memory, NULL));
  collectives_memory_free(memory);

  collectives_device_memory* on_gpu;
  collectives_device_access access;
  INVALID("comm is null", collectives_device_memory_allocate(NULL, 1, &on_gpu));
  INVALID("memory is null", collectives_device_memory_allocate(comm, 1, NULL));
  INVALID("comm is null", collectives_device_memory_register(NULL, &memory, 1, &on_gpu));
  INVALID("memory is null", collectives_device_memory_register(comm, &memory, 1, NULL));
  INVALID("memory is null", collectives_device_memory_access(NULL, &access));
  INVALID("access is null", collectives_device_memory_access(NULL, NULL));
  INVALID("memory is null", collectives_device_memory_describe(NULL, &text));
  CHECK(collectives_device_memory_data(NULL) == NULL && collectives_device_memory_bytes(NULL) == 0);

  INVALID("name is null", collectives_user_op_create(NULL, compose, NULL, 1, &op));
  INVALID("combine is null", collectives_user_op_create("op", NULL, NULL, 1, &op));
  INVALID("op is null", collectives_user_op_create("op", compose, NULL, 1, NULL));
  collectives_codec_functions functions = {.size = sizeof functions,
                                           .name = "halves",
                                           .encoded_bytes = halves_bytes,
                                           .encode = halves_encode,
                                           .decode = halves_decode};
  INVALID("functions is null", collectives_codec_create(NULL, &codec));
  INVALID("codec is null", collectives_codec_create(&functions, NULL));
  functions.decode = NULL;
  INVALID("decode is null", collectives_codec_create(&functions, &codec));
  functions.encode = NULL;
  INVALID("encode is null", collectives_codec_create(&functions, &codec));
  functions.encoded_bytes = NULL;
  INVALID("encoded_bytes is null", collectives_codec_create(&functions, &codec));
  functions.name = NULL;
  INVALID("name is null", collectives_codec_create(&functions, &codec));

  INVALID("top_k is null", collectives_top_k_create(NULL, NULL));
  INVALID("top_k is null", collectives_top_k_get_report(NULL, "fc1", &report));
  INVALID("top_k is null", collectives_top_k_save(NULL, &state, &bytes));
  INVALID("top_k is null", collectives_top_k_load(NULL, (const void* const*)&state, &bytes, 0, 0, 1));
  OK(collectives_top_k_create(NULL, &top_k));
  INVALID("name is null", collectives_top_k_get_report(top_k, NULL, &report));
  INVALID("state is null", collectives_top_k_save(top_k, NULL, &bytes));
  INVALID("bytes is null", collectives_top_k_save(top_k, &state, NULL));
  INVALID("states is null", collectives_top_k_load(top_k, NULL, &bytes, 0, 0, 1));
  INVALID("bytes is null", collectives_top_k_load(top_k, (const void* const*)&state, NULL, 0, 0, 1));
  INVALID("there is no saved state", collectives_top_k_load(top_k, (const void* const*)&state, &bytes, 0, 0, 1));
  const collectives_options options = {.size = sizeof options, .name = "fc1", .compressor = top_k};
  OK(collectives_all_reduce(comm, data, data, 2, f32, sum, &options));
  INVALID("report is null", collectives_top_k_get_report(top_k, "fc1", NULL));
  collectives_top_k_free(top_k);
}

static void WrongArgumentsAreRefused(Comm* comm) {
  float data[4] = {0};
  const size_t huge[1] = {SIZE_MAX};
  char* text;
  collectives_threads* threads;
  INVALID("collectives_all_reduce: no such type: 10",
          collectives_all_reduce(comm, data, data, 1, (collectives_data_type)10, COLLECTIVES_SUM, NULL));
  INVALID("no such type: -1", collectives_all_gather(comm, data, data, 1, (collectives_data_type)-1, NULL));
  INVALID("no such type: 256", collectives_broadcast(comm, data, data, 1, (collectives_data_type)256, 0, NULL));
  INVALID("no such op: 7", collectives_all_reduce(comm, data, data, 1, COLLECTIVES_F32, (collectives_op)7, NULL));
  INVALID("no such collective: 6",
          collectives_explain(comm, (collectives_collective)6, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &text));
  INVALID("needs a factor, in collectives_options",
          collectives_all_reduce(comm, data, data, 1, COLLECTIVES_F32, COLLECTIVES_PRE_SCALED_SUM, NULL));
  INVALID("collectives_options::user_op is null",
          collectives_all_reduce(comm, data, data, 1, COLLECTIVES_F32, COLLECTIVES_USER_OP, NULL));
  INVALID("root 1 is not a rank", collectives_broadcast(comm, data, data, 1, COLLECTIVES_F32, 1, NULL));
  INVALID("root -1 is not a rank", collectives_reduce(comm, data, data, 1, COLLECTIVES_F32, COLLECTIVES_SUM, -1, NULL));
  INVALID("overlap without being in place",
          collectives_all_reduce(comm, data, data + 1, 3, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  INVALID("overflow", collectives_all_reduce(comm, data, data, SIZE_MAX, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  INVALID("overflow", collectives_all_gather(comm, data, data, SIZE_MAX / 2, COLLECTIVES_F32, NULL));
  INVALID("overflow", collectives_reduce_scatter_v(comm, data, data, huge, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  INVALID("bootstrap_threads(0)", collectives_threads_create(0, &threads));
  CHECK(threads == NULL);
  OK(collectives_barrier(comm, NULL));  // nothing of this has broken it
}

static void WrongOptionsAreRefused(Comm* comm) {
  float data[4] = {0};
  Comm* other = NULL;
  const collectives_options good = {.size = sizeof good};
  collectives_options bad = good;
#define BAD(text, ...)                                                                                  \
  do {                                                                                                  \
    bad = good;                                                                                         \
    __VA_ARGS__;                                                                                        \
    INVALID(text, collectives_all_reduce(comm, data, data, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &bad)); \
  } while (0)
  BAD("collectives_options::size is 0: it must be sizeof(collectives_options)", bad.size = 0);
  BAD("collectives_options::size is 13", bad.size = 13);
  BAD("collectives_options::size is 8000", bad.size = 8000);
  BAD("unknown backend \"rnig\"; known: auto", bad.backend = "rnig");
  BAD("timeout_seconds is -1", bad.timeout_seconds = -1);
  BAD("timeout_seconds is nan", bad.timeout_seconds = NAN);
  BAD("deterministic is 3", bad.deterministic = (collectives_switch)3);
  BAD("force is -1", bad.force = (collectives_switch)-1);
  collectives_user_op* op;
  OK(collectives_user_op_create("op", compose, NULL, 1, &op));
  BAD("has a user_op, which op does not use", bad.user_op = op);
  collectives_user_op_free(op);

  collectives_communicator_options how = {.size = sizeof how, .backend = "rnig"};
  INVALID("unknown backend \"rnig\"", collectives_communicator_from_environment(&how, &other));
  CHECK(other == NULL);
  how = (collectives_communicator_options){.size = sizeof how, .timeout_seconds = -3};
  INVALID("timeout_seconds is -3", collectives_communicator_from_environment(&how, &other));
  how = (collectives_communicator_options){.size = sizeof how, .stall_report_seconds = -3};
  INVALID("stall_report_seconds is -3", collectives_communicator_from_environment(&how, &other));
  how = (collectives_communicator_options){.size = sizeof how, .progress_thread = (collectives_switch)5};
  INVALID("progress_thread is 5", collectives_split(comm, 0, 0, &how, &other));
  how = (collectives_communicator_options){.size = sizeof how, .device_buffers = (collectives_switch)5};
  INVALID("device_buffers is 5", collectives_split(comm, 0, 0, &how, &other));
  how = (collectives_communicator_options){.size = sizeof how, .reserved = COLLECTIVES_ON};
  FAILS(UNSUPPORTED, "collectives_communicator_options uses a field that this library",
        collectives_split(comm, 0, 0, &how, &other));
  how = (collectives_communicator_options){.backend = "ring"};
  INVALID("collectives_communicator_options::size is 0", collectives_split(comm, 0, 0, &how, &other));
  how = (collectives_communicator_options){.size = sizeof how,
                                           .backend = "ring",
                                           .timeout_seconds = INFINITY,
                                           .stall_report_seconds = INFINITY,
                                           .transport = "shared_memory",
                                           .wire = "tcp",
                                           .deterministic = COLLECTIVES_ON,
                                           .progress_thread = COLLECTIVES_OFF,
                                           .device_buffers = COLLECTIVES_OFF};
  OK(collectives_split(comm, 0, 0, &how, &other));
  OK(collectives_barrier(other, NULL));
  void* stream = NULL;
  bad = good;
  bad.stream = &stream;
  FAILS(UNSUPPORTED, "a stream was given, and this communicator takes no device buffers",
        collectives_all_reduce(other, data, data, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &bad));
  collectives_communicator_free(other);

  collectives_top_k* top_k;
  collectives_top_k_options few = {.size = sizeof few, .density = 2};
  INVALID("density 2", collectives_top_k_create(&few, &top_k));
  CHECK(top_k == NULL);
  few = (collectives_top_k_options){.size = sizeof few, .momentum = 0.5, .error_feedback = COLLECTIVES_OFF};
  INVALID("momentum needs error_feedback", collectives_top_k_create(&few, &top_k));
  few = (collectives_top_k_options){.size = sizeof few, .values = "f64"};
  INVALID("not as f64", collectives_top_k_create(&few, &top_k));
  few = (collectives_top_k_options){.size = sizeof few, .values = "float"};
  INVALID("not as \"float\"", collectives_top_k_create(&few, &top_k));
  few = (collectives_top_k_options){.size = sizeof few, .non_finite = (collectives_non_finite)3};
  INVALID("no such non_finite: 3", collectives_top_k_create(&few, &top_k));
  few = (collectives_top_k_options){.size = sizeof few, .form = (collectives_sparse_form)3};
  INVALID("no such form: 3", collectives_top_k_create(&few, &top_k));
  few = (collectives_top_k_options){.size = sizeof few,
                                    .density = 0.1,
                                    .momentum = 0.9,
                                    .clip = 1,
                                    .warm_up_calls = 3,
                                    .warm_up_density = 0.5,
                                    .values = "bf16",
                                    .masking = COLLECTIVES_OFF,
                                    .non_finite = COLLECTIVES_NON_FINITE_SKIP,
                                    .form = COLLECTIVES_SPARSE_SPLIT};
  OK(collectives_top_k_create(&few, &top_k));
  collectives_top_k_free(top_k);
}

static void StructsOfOtherVersionsAreUnderstood(Comm* comm) {
  float data[4] = {0};
  // Of a program compiled when `name` was the last field: what follows is not even looked at.
  collectives_options old = {.size = offsetof(collectives_options, timeout_seconds), .timeout_seconds = -1};
  OK(collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &old));
  // Of one that knows more fields than this library, and uses them or not.
  struct {
    collectives_options options;
    const char* more;
  } newer = {{.size = sizeof newer}, NULL};
  OK(collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &newer.options));
  newer.more = "turbo";
  FAILS(UNSUPPORTED, "collectives_options uses a field that this library",
        collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &newer.options));
  // What is filled is filled as far as the program goes.
  struct {
    collectives_coding_report report;
    uint64_t more;
  } longer = {{.size = sizeof longer, .raw_bytes = 7}, 7};
  OK(collectives_coding(comm, &longer.report));
  CHECK(longer.report.size == sizeof longer && longer.report.raw_bytes == 0 && longer.more == 0);
  collectives_coding_report shorter = {.size = offsetof(collectives_coding_report, sent_bytes), .sent_bytes = 7};
  OK(collectives_coding(comm, &shorter));
  CHECK(shorter.raw_bytes == 0 && shorter.sent_bytes == 7);
  shorter.size = 0;
  INVALID("collectives_coding_report::size is 0", collectives_coding(comm, &shorter));
}

static void TooMuchMemoryIsRefused(Comm* comm) {
  collectives_memory* memory;
  collectives_group* group;
  char byte = 0;
  FAILS(SYSTEM, "", collectives_memory_allocate(comm, SIZE_MAX / 4, 0, &memory));
  CHECK(memory == NULL && strlen(collectives_last_error()) > 10);
  // Tensors that are packed into one: two for which there is no room, three for which there is no number.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const int few = 3;  // allocators of sanitizers end the program when there is no room
#else
  const int few = 2;
#endif
  for (int tensors = few; tensors <= 3; ++tensors) {
    OK(collectives_group_create(comm, &group));
    for (int i = 0; i < tensors; ++i)
      OK(collectives_group_all_reduce(group, &byte, &byte, SIZE_MAX / 5, COLLECTIVES_U8, COLLECTIVES_SUM, NULL));
    FAILS(SYSTEM, tensors == 2 ? "collectives_group_run: out of memory" : "collectives_group_run: ",
          collectives_group_run(group));
    collectives_group_free(group);
  }
  OK(collectives_barrier(comm, NULL));
}

static void ABadEnvironmentIsNamed(Comm* comm) {
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
  CHECK(collectives_last_error_rank() == 0 && strcmp(collectives_last_error_operation(), "broadcast") == 0);
  return NULL;
}

static void EveryThreadHasItsLastError(Comm* comm) {
  INVALID("work is null", collectives_work_wait(NULL));
  const char* text = collectives_last_error();
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_elsewhere, comm) == 0 && pthread_join(thread, NULL) == 0);
  OK(collectives_barrier(comm, NULL));
  CHECK(text == collectives_last_error() && strstr(text, "work is null") != NULL);
}

// ---- children made by fork() ----

static void MayForkAChildThatMakesItsOwn(Comm* comm) {
#ifdef __SANITIZE_THREAD__
  (void)comm;
  return;  // its children do nothing that takes a lock, where there were threads
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

// ---- ranks that are threads ----

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

static void RanksMayBeThreads(Comm* comm) {
  OK(collectives_barrier(comm, NULL));
  run_threads(3, ScatterGatherAndBroadcast);
  run_threads(2, AreToldWhoDisagrees);
}

// ---- the program ----

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
