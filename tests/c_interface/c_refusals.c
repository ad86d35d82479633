// Tests of the C interface: arguments, options and structs that a call refuses. Each test is a function, called a
// situation (c_interface_test.h). There is one rank, without a launcher.
#include <math.h>
#include <stddef.h>

#include "c_interface_test.h"

// ---- null ----

static void free_null(void) {
  collectives_free(NULL);
  collectives_communicator_free(NULL);
  collectives_threads_free(NULL);
  collectives_work_free(NULL);
  collectives_group_free(NULL);
  collectives_memory_free(NULL);
  collectives_user_op_free(NULL);
  collectives_codec_free(NULL);
  collectives_top_k_free(NULL);
}

static void ask_null(void) {
  CHECK(collectives_rank(NULL) == -1 && collectives_size(NULL) == -1 && collectives_transport(NULL) == NULL);
  CHECK(strcmp(collectives_last_error(), "collectives_transport: comm is null") == 0);
  CHECK(collectives_bytes_sent(NULL) == 0 && collectives_bytes_sent_to_other_hosts(NULL) == 0);
  CHECK(collectives_memory_data(NULL) == NULL && collectives_memory_bytes(NULL) == 0);
  CHECK(strcmp(collectives_last_error(), "collectives_memory_bytes: memory is null") == 0);
}

static void null_for_communicators(Comm* comm) {
  Comm* other;
  collectives_threads* threads;
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
}

static void null_for_questions(Comm* comm) {
  const collectives_data_type f32 = COLLECTIVES_F32;
  const collectives_op sum = COLLECTIVES_SUM;
  char* text;
  collectives_coding_report coding = {.size = sizeof coding};
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
}

static void null_for_blocking_calls(Comm* comm) {
  const collectives_data_type f32 = COLLECTIVES_F32;
  const collectives_op sum = COLLECTIVES_SUM;
  float data[2] = {0};
  size_t counts[1] = {1};
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
  INVALID("input is null with 1 elements", collectives_all_reduce(comm, NULL, data, 1, f32, sum, NULL));
  INVALID("output is null with 1 elements", collectives_all_reduce(comm, data, NULL, 1, f32, sum, NULL));
  INVALID("output is null", collectives_reduce(comm, data, NULL, 1, f32, sum, 0, NULL));
  INVALID("input is null", collectives_broadcast(comm, NULL, data, 1, f32, 0, NULL));
}

static void null_for_asynchronous_calls(Comm* comm) {
  const collectives_data_type f32 = COLLECTIVES_F32;
  const collectives_op sum = COLLECTIVES_SUM;
  float data[2] = {0};
  size_t counts[1] = {1};
  collectives_work* work;
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
}

static void null_for_work(Comm* comm) {
  int done;
  collectives_work* work;
  INVALID("work is null", collectives_work_wait(NULL));
  INVALID("work is null", collectives_work_wait_for(NULL, 0, &done));
  INVALID("work is null", collectives_work_test(NULL, &done));
  OK(collectives_barrier_async(comm, NULL, &work));
  INVALID("done is null", collectives_work_wait_for(work, 0, NULL));
  INVALID("done is null", collectives_work_test(work, NULL));
  collectives_work_free(work);
}

static void null_for_groups(Comm* comm) {
  const collectives_data_type f32 = COLLECTIVES_F32;
  const collectives_op sum = COLLECTIVES_SUM;
  float data[2] = {0};
  collectives_work* work;
  collectives_group* group;
  INVALID("comm is null", collectives_group_create(NULL, &group));
  INVALID("group is null", collectives_group_create(comm, NULL));
  INVALID("group is null", collectives_group_all_reduce(NULL, data, data, 1, f32, sum, NULL));
  INVALID("group is null", collectives_group_run(NULL));
  INVALID("group is null", collectives_group_run_async(NULL, &work));
  OK(collectives_group_create(comm, &group));
  INVALID("input is null", collectives_group_all_reduce(group, NULL, data, 1, f32, sum, NULL));
  INVALID("work is null", collectives_group_run_async(group, NULL));
  collectives_group_free(group);
}

static void null_for_memory(Comm* comm) {
  char* text;
  collectives_memory* memory;
  collectives_pages pages;
  INVALID("comm is null", collectives_memory_allocate(NULL, 1, 0, &memory));
  INVALID("memory is null", collectives_memory_allocate(comm, 1, 0, NULL));
  INVALID("memory is null", collectives_memory_pages(NULL, &pages));
  INVALID("memory is null", collectives_memory_describe(NULL, &text));
  OK(collectives_memory_allocate(comm, 1, 0, &memory));
  INVALID("pages is null", collectives_memory_pages(memory, NULL));
  INVALID("text is null", collectives_memory_describe(memory, NULL));
  collectives_memory_free(memory);
}

static void null_for_device_memory(Comm* comm) {
  char* text;
  collectives_memory* memory;
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
}

static void null_for_operators_and_codecs(void) {
  collectives_user_op* op;
  collectives_codec* codec;
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
}

static void null_for_top_k(Comm* comm) {
  float data[2] = {0};
  size_t bytes;
  void* state;
  collectives_top_k* top_k;
  collectives_top_k_report report = {.size = sizeof report};
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
  OK(collectives_all_reduce(comm, data, data, 2, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  INVALID("report is null", collectives_top_k_get_report(top_k, "fc1", NULL));
  collectives_top_k_free(top_k);
}

void NullIsRefused(Comm* comm) {
  free_null();
  ask_null();
  null_for_communicators(comm);
  null_for_questions(comm);
  null_for_blocking_calls(comm);
  null_for_asynchronous_calls(comm);
  null_for_work(comm);
  null_for_groups(comm);
  null_for_memory(comm);
  null_for_device_memory(comm);
  null_for_operators_and_codecs();
  null_for_top_k(comm);
}

// ---- wrong values ----

void WrongArgumentsAreRefused(Comm* comm) {
  float data[4] = {0};
  const size_t huge[1] = {SIZE_MAX};
  char* text;
  collectives_threads* threads;
  INVALID("collectives_all_reduce #1: no such type: 22",
          collectives_all_reduce(comm, data, data, 1, (collectives_data_type)22, COLLECTIVES_SUM, NULL));
  INVALID("no such type: -1", collectives_all_gather(comm, data, data, 1, (collectives_data_type)-1, NULL));
  INVALID("no such type: 256", collectives_broadcast(comm, data, data, 1, (collectives_data_type)256, 0, NULL));
  INVALID("no such op: 15", collectives_all_reduce(comm, data, data, 1, COLLECTIVES_F32, (collectives_op)15, NULL));
  INVALID("no such collective: 11",
          collectives_explain(comm, (collectives_collective)11, 1, COLLECTIVES_F32, COLLECTIVES_SUM, NULL, &text));
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
  OK(collectives_barrier(comm, NULL));  // the communicator still works
}

static void wrong_options_of_calls(Comm* comm) {
  float data[4] = {0};
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
}

static void wrong_options_of_communicators(Comm* comm) {
  Comm* other = NULL;
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
  how = (collectives_communicator_options){.size = sizeof how, .inject = "kill rank=0"};
  INVALID("CommunicatorOptions::inject=\"kill rank=0\": at character 1: kill needs call=",
          collectives_split(comm, 0, 0, &how, &other));
  how = (collectives_communicator_options){.backend = "ring"};
  INVALID("collectives_communicator_options::size is 0", collectives_split(comm, 0, 0, &how, &other));
}

// Every option of a communicator at once, on a host without a GPU.
static void all_options_of_communicators(Comm* comm) {
  float data[4] = {0};
  Comm* other = NULL;
  const collectives_communicator_options how = {.size = sizeof how,
                                                .backend = "ring",
                                                .timeout_seconds = INFINITY,
                                                .stall_report_seconds = INFINITY,
                                                .transport = "shared_memory",
                                                .wire = "tcp",
                                                .deterministic = COLLECTIVES_ON,
                                                .progress_thread = COLLECTIVES_OFF,
                                                .device_buffers = COLLECTIVES_OFF,
                                                .inject = "delay rank=0 call=1 ms=1"};
  OK(collectives_split(comm, 0, 0, &how, &other));
  OK(collectives_barrier(other, NULL));
  void* stream = NULL;
  const collectives_options in_stream = {.size = sizeof in_stream, .stream = &stream};
  FAILS(UNSUPPORTED, "a stream was given, and this communicator takes no device buffers",
        collectives_all_reduce(other, data, data, 1, COLLECTIVES_F32, COLLECTIVES_SUM, &in_stream));
  collectives_communicator_free(other);
}

static void wrong_options_of_top_k(void) {
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

void WrongOptionsAreRefused(Comm* comm) {
  wrong_options_of_calls(comm);
  wrong_options_of_communicators(comm);
  all_options_of_communicators(comm);
  wrong_options_of_top_k();
}

void StructsOfOtherVersionsAreUnderstood(Comm* comm) {
  float data[4] = {0};
  // A program compiled when `name` was the last field: later fields are ignored.
  collectives_options old = {.size = offsetof(collectives_options, timeout_seconds), .timeout_seconds = -1};
  OK(collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &old));
  // A program compiled with a newer header, whose struct has a field that this library does not know. The program
  // leaves that field 0, and later sets it.
  struct {
    collectives_options options;
    const char* more;
  } newer = {{.size = sizeof newer}, NULL};
  OK(collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &newer.options));
  newer.more = "turbo";
  FAILS(UNSUPPORTED, "collectives_options uses a field that this library",
        collectives_all_reduce(comm, data, data, 4, COLLECTIVES_F32, COLLECTIVES_SUM, &newer.options));
  // The library writes the fields of a report that the program's struct has. It sets fields that it does not know to 0.
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

void TooMuchMemoryIsRefused(Comm* comm) {
  collectives_memory* memory;
  FAILS(SYSTEM, "", collectives_memory_allocate(comm, SIZE_MAX / 4, 0, &memory));
  CHECK(memory == NULL && strlen(collectives_last_error()) > 10);
  OK(collectives_barrier(comm, NULL));
}
