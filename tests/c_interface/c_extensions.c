// Tests of the C interface: operators and codecs that the program defines, and compression by top-k. Each test is a
// function, called a situation (c_interface_test.h), and all ranks run it.
#include <math.h>

#include "c_interface_test.h"

// An element stands for the function x -> a x + b, with a in its upper 32 bits and b in its lower. The operator
// composes two functions: `next` is applied after `accumulated`. It is associative, but not commutative.
static uint64_t map_of(uint64_t a, uint64_t b) { return a << 32 | b; }
static uint64_t composed(uint64_t after, uint64_t map) {
  const uint64_t a = after >> 32, b = after & UINT32_MAX;
  return map_of(a * (map >> 32), a * (map & UINT32_MAX) + b);
}
void compose(void* context, const void* next, void* accumulated, size_t count, collectives_data_type type) {
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

// A value and its place. The op keeps the larger value.
struct located {
  double value;
  int64_t place;
};
static void max_with_place(void* context, const void* next, void* accumulated, size_t count,
                           collectives_data_type type) {
  const struct located* theirs = next;
  struct located* mine = accumulated;
  CHECK(context == NULL && type == COLLECTIVES_U8 && count % sizeof *mine == 0);
  for (size_t i = 0; i < count / sizeof *mine; ++i)
    if (theirs[i].value > mine[i].value) mine[i] = theirs[i];
}

void ApplyAnOpToElementsOfSeveralBytes(Comm* comm) {
  const int rank = collectives_rank(comm), p = collectives_size(comm);
  collectives_user_op* op;
  OK(collectives_user_op_create("max with place", max_with_place, NULL, 1, &op));
  OK(collectives_user_op_set_element_bytes(op, sizeof(struct located)));
  collectives_options options = {.size = sizeof options, .user_op = op};
  struct located values[kCount];
  for (int ring = 0; ring < 2; ++ring) {
    options.backend = ring ? "ring" : NULL;
    for (int i = 0; i < kCount; ++i) values[i] = (struct located){i % p == rank ? 2 : 1, rank};
    OK(collectives_all_reduce(comm, values, values, sizeof values, COLLECTIVES_U8, COLLECTIVES_USER_OP, &options));
    for (int i = 0; i < kCount; ++i) CHECK(values[i].value == 2 && values[i].place == i % p);
  }
  INVALID("input has 17 elements of u8, which is no multiple of 16: an element of user op \"max with place\"",
          collectives_all_reduce(comm, values, values, 17, COLLECTIVES_U8, COLLECTIVES_USER_OP, &options));
  OK(collectives_user_op_set_element_bytes(op, 0));  // one element of the type
  INVALID("op is null", collectives_user_op_set_element_bytes(NULL, 8));
  collectives_user_op_free(op);
}

void ApplyAnOpOfTheirOwn(Comm* comm) {
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

// Sums 1000 values from 1 to 2. Checks that the relative error is at most `error` and that all ranks get equal bytes.
// Checks that coding saved a factor of at least `saved`.
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

void SendBf16(Comm* comm) {
  collectives_options options = {.size = sizeof options, .wire = "bf16", .force = COLLECTIVES_ON};
  check_coded(comm, &options, 2.0 / 256, 2);
  options.wire = "f16";
  check_coded(comm, &options, 2.0 / 2048, 2);
  options.wire = "int8";
  check_coded(comm, &options, 4.0 / 254, 3.9);
  options.wire = "f32";  // values are sent as f32, without a codec
  float value = 1;
  OK(collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  options.wire = "bf17";
  INVALID("unknown wire \"bf17\"; known: f32, bf16, f16, int8, mx_f8e4m3, mx_f8e5m2",
          collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  options.wire = "i8";
  INVALID("nothing travels as i8",
          collectives_all_reduce(comm, &value, &value, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
}

// A codec that sends the upper half of each f32.
size_t halves_bytes(void* context, size_t count) {
  CHECK(*(int*)context == 19);
  return 2 * count;
}
void halves_encode(void* context, const float* values, size_t count, void* bytes) {
  CHECK(*(int*)context == 19);
  for (size_t i = 0; i < count; ++i) memcpy((char*)bytes + 2 * i, (const char*)(values + i) + 2, 2);
}
void halves_decode(void* context, const void* bytes, float* values, size_t count) {
  CHECK(*(int*)context == 19);
  for (size_t i = 0; i < count; ++i) {
    values[i] = 0;
    memcpy((char*)(values + i) + 2, (const char*)bytes + 2 * i, 2);
  }
}

void SendByACodecOfTheirOwn(Comm* comm) {
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
  memset(name, 'x', sizeof name - 1);  // changes nothing, because the codec has a copy of its name
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

void ChooseTopKAndContinueFromACheckpoint(Comm* comm) {
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
  CHECK(report.chosen == kChosen && report.union_size >= kChosen && report.sent_bytes < report.raw_bytes);
  CHECK(strlen(report.reason) > 0 && report.residual_norm > 0 && report.relative_error > 0);
  INVALID("no tensor \"fc2\"", collectives_top_k_get_report(top_k, "fc2", &report));

  // Every rank gets the saved states of all ranks.
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
  OK(collectives_top_k_load(fresh, states, all_bytes, p, 0, 1));  // one rank loads the states of all ranks
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
