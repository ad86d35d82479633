// Tests of the C interface: persistent calls, groups of any collectives, and communicators made by their members.
#include "c_interface_test.h"

static void start_and_wait(collectives_persistent* call) {
  int done = 0;
  OK(collectives_persistent_start(call));
  INVALID("this persistent call is started already", collectives_persistent_start(call));
  OK(collectives_persistent_test(call, &done));
  OK(collectives_persistent_wait_for(call, 60, &done));
  CHECK(done == 1);
  OK(collectives_persistent_start(call));
  OK(collectives_persistent_wait(call));
  OK(collectives_persistent_wait(call));  // nothing is started
}

void StartPersistentCalls(Comm* comm) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  const int last = collectives_size(comm) - 1;
  const collectives_options options = {.size = sizeof options, .name = "tensor"};
  int32_t in[3], sum[3], wide[3 * kMost], part[3], sent[3], reduced[3] = {0};
  size_t counts[kMost];
  for (size_t i = 0; i < 3; ++i) in[i] = (int32_t)(self + i), sent[i] = (int32_t)self;
  for (size_t r = 0; r < p; ++r) counts[r] = 3;
  int32_t ranks = 0;
  for (size_t r = 0; r < p; ++r) ranks += (int32_t)r;
  collectives_persistent* calls[8] = {NULL};
  const collectives_data_type i32 = COLLECTIVES_I32;
  OK(collectives_persistent_all_reduce(comm, in, sum, 3, i32, COLLECTIVES_SUM, &options, &calls[0]));
  OK(collectives_persistent_all_gather(comm, in, wide, 3, i32, NULL, &calls[1]));
  OK(collectives_persistent_all_gather_v(comm, in, wide, counts, i32, NULL, &calls[2]));
  OK(collectives_persistent_reduce_scatter(comm, wide, part, 3, i32, COLLECTIVES_SUM, NULL, &calls[3]));
  OK(collectives_persistent_reduce_scatter_v(comm, wide, part, counts, i32, COLLECTIVES_SUM, NULL, &calls[4]));
  OK(collectives_persistent_broadcast(comm, sent, sent, 3, i32, last, NULL, &calls[5]));
  OK(collectives_persistent_reduce(comm, in, reduced, 3, i32, COLLECTIVES_SUM, last, NULL, &calls[6]));
  OK(collectives_persistent_barrier(comm, NULL, &calls[7]));
  for (size_t c = 0; c < 8; ++c) start_and_wait(calls[c]);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(sum[i] == ranks + (int32_t)(p * i));
    for (size_t r = 0; r < p; ++r) CHECK(wide[3 * r + i] == (int32_t)(r + i));
    CHECK(part[i] == (int32_t)(p * (self + i)));
    CHECK(sent[i] == last);
    CHECK(reduced[i] == ((int)self == last ? sum[i] : 0));
  }
  for (size_t c = 0; c < 8; ++c) collectives_persistent_free(calls[c]);
  INVALID("input is null",
          collectives_persistent_all_reduce(comm, NULL, sum, 3, i32, COLLECTIVES_SUM, NULL, &calls[0]));
  CHECK(calls[0] == NULL);
  INVALID("call is null", collectives_persistent_barrier(comm, NULL, NULL));
  INVALID("call is null", collectives_persistent_start(NULL));
  INVALID("comm is null", collectives_persistent_barrier(NULL, NULL, &calls[0]));
  collectives_persistent_free(NULL);
}

/// Input of a rank with two elements for each rank, and the results of blocks and scans of it.
typedef struct {
  size_t p, self, last, counts[kMost];
  int32_t in[2 * kMost], all[2 * kMost], all_v[2 * kMost], gathered[2 * kMost], gathered_v[2 * kMost];
  int32_t part[2], part_v[2], scanned[2], before[2];
} Blocks;

static Blocks blocks_of(Comm* comm) {
  Blocks b = {.p = size_of(comm), .self = (size_t)collectives_rank(comm)};
  b.last = b.p - 1;
  for (size_t r = 0; r < b.p; ++r) b.counts[r] = 2;
  for (size_t i = 0; i < 2 * b.p; ++i) b.in[i] = (int32_t)(100 * b.self + i);
  return b;
}

static void check_blocks(const Blocks* b) {
  int32_t before = 0;
  for (size_t r = 0; r < b->self; ++r) before += (int32_t)(100 * r);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(b->part[i] == (int32_t)(100 * b->last + 2 * b->self + i) && b->part_v[i] == b->part[i]);
    CHECK(b->scanned[i] == before + (int32_t)(b->self * i) + b->in[i]);
    CHECK(b->self == 0 || b->before[i] == before + (int32_t)(b->self * i));
    for (size_t r = 0; r < b->p; ++r) {
      const size_t at = 2 * r + i;
      CHECK(b->all[at] == (int32_t)(100 * r + 2 * b->self + i) && b->all_v[at] == b->all[at]);
      CHECK(b->self != b->last || (b->gathered[at] == (int32_t)(100 * r + i) && b->gathered_v[at] == b->gathered[at]));
    }
  }
}

void StartPersistentBlocks(Comm* comm) {
  Blocks b = blocks_of(comm);
  const int last = (int)b.last;
  const collectives_data_type i32 = COLLECTIVES_I32;
  collectives_persistent* calls[8] = {NULL};
  OK(collectives_persistent_all_to_all(comm, b.in, b.all, 2, i32, NULL, &calls[0]));
  OK(collectives_persistent_all_to_all_v(comm, b.in, b.counts, NULL, b.all_v, b.counts, NULL, i32, NULL, &calls[1]));
  OK(collectives_persistent_gather(comm, b.in, b.gathered, 2, i32, last, NULL, &calls[2]));
  OK(collectives_persistent_gather_v(comm, b.in, 2, b.gathered_v, b.counts, NULL, i32, last, NULL, &calls[3]));
  OK(collectives_persistent_scatter(comm, b.in, b.part, 2, i32, last, NULL, &calls[4]));
  OK(collectives_persistent_scatter_v(comm, b.in, b.counts, NULL, b.part_v, 2, i32, last, NULL, &calls[5]));
  OK(collectives_persistent_scan(comm, b.in, b.scanned, 2, i32, COLLECTIVES_SUM, NULL, &calls[6]));
  OK(collectives_persistent_exclusive_scan(comm, b.in, b.before, 2, i32, COLLECTIVES_SUM, NULL, &calls[7]));
  for (size_t c = 0; c < 8; ++c) start_and_wait(calls[c]);
  check_blocks(&b);
  for (size_t c = 0; c < 8; ++c) collectives_persistent_free(calls[c]);
  INVALID("input_counts is null",
          collectives_persistent_all_to_all_v(comm, b.in, NULL, NULL, b.all_v, b.counts, NULL, i32, NULL, &calls[0]));
}

void StartPersistentMessages(Comm* comm) {
  const int p = collectives_size(comm), self = collectives_rank(comm), next = (self + 1) % p, last = (self + p - 1) % p;
  int32_t out[2] = {self, 5}, in[2] = {0, 0}, echo[2] = {0, 0};
  const collectives_data_type i32 = COLLECTIVES_I32;
  collectives_persistent *exchange, *send, *receive;
  OK(collectives_persistent_sendrecv(comm, out, 2, next, in, 2, COLLECTIVES_ANY_SOURCE, i32, 1, NULL, &exchange));
  OK(collectives_persistent_send(comm, in, 2, i32, last, 2, NULL, &send));
  OK(collectives_persistent_recv(comm, echo, 2, i32, next, 2, NULL, &receive));
  for (int round = 0; round < 3; ++round) {
    int source = 7;
    out[1] = round;
    start_and_wait(exchange);
    OK(collectives_persistent_source(exchange, &source));
    CHECK(source == last && in[0] == last && in[1] == round);
    OK(collectives_persistent_start(receive));
    OK(collectives_persistent_start(send));
    OK(collectives_persistent_wait(receive));
    OK(collectives_persistent_wait(send));
    CHECK(echo[0] == self && echo[1] == round);
    OK(collectives_persistent_source(send, &source));
    CHECK(source == -1);
  }
  INVALID("source is null", collectives_persistent_source(send, NULL));
  collectives_persistent_free(exchange);
  collectives_persistent_free(send);
  collectives_persistent_free(receive);
  INVALID("tag -1 is not", collectives_persistent_send(comm, in, 2, i32, 0, -1, NULL, &send));
  INVALID("call is null", collectives_persistent_recv(comm, in, 2, i32, 0, 0, NULL, NULL));
  int source = 0;
  INVALID("call is null", collectives_persistent_source(NULL, &source));
}

void GroupBlocksAndScans(Comm* comm) {
  Blocks b = blocks_of(comm);
  const int last = (int)b.last;
  const collectives_data_type i32 = COLLECTIVES_I32;
  collectives_group* group;
  OK(collectives_group_create(comm, &group));
  OK(collectives_group_all_to_all(group, b.in, b.all, 2, i32, NULL));
  OK(collectives_group_all_to_all_v(group, b.in, b.counts, NULL, b.all_v, b.counts, NULL, i32, NULL));
  OK(collectives_group_gather(group, b.in, b.gathered, 2, i32, last, NULL));
  OK(collectives_group_gather_v(group, b.in, 2, b.gathered_v, b.counts, NULL, i32, last, NULL));
  OK(collectives_group_scatter(group, b.in, b.part, 2, i32, last, NULL));
  OK(collectives_group_scatter_v(group, b.in, b.counts, NULL, b.part_v, 2, i32, last, NULL));
  OK(collectives_group_scan(group, b.in, b.scanned, 2, i32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_exclusive_scan(group, b.in, b.before, 2, i32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_run(group));
  check_blocks(&b);
  INVALID("group is null", collectives_group_scan(NULL, b.in, b.scanned, 2, i32, COLLECTIVES_SUM, NULL));
  collectives_group_free(group);
}

void GroupDisplacedParts(Comm* comm) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  const collectives_data_type i32 = COLLECTIVES_I32;
  size_t counts[kMost], places[kMost], overlapping[kMost], equal[kMost];
  for (size_t r = 0; r < p; ++r) {
    counts[r] = 3;
    places[r] = 5 * (p - 1 - r) + 1;  // backwards, two elements apart
    overlapping[r] = 2 * r;
    equal[r] = 0;
  }
  collectives_options options = {.size = sizeof options, .displacements = places};
  const int32_t in[3] = {(int32_t)self, 7, (int32_t)(10 * self)};
  int32_t all[5 * kMost], dense[3 * kMost], whole[5 * kMost], part[3], overlapped[3];
  int32_t ranks = 0;
  for (size_t r = 0; r < p; ++r) ranks += (int32_t)r;
  for (size_t i = 0; i < 5 * p; ++i) all[i] = -1, whole[i] = (int32_t)(self + i);
  collectives_group* group;
  OK(collectives_group_create(comm, &group));
  OK(collectives_group_all_gather_v(group, in, all, counts, i32, &options));
  OK(collectives_group_all_gather_v(group, in, dense, counts, i32, NULL));
  OK(collectives_group_reduce_scatter_v(group, whole, part, counts, i32, COLLECTIVES_SUM, &options));
  options.displacements = overlapping;
  OK(collectives_group_reduce_scatter_v(group, whole, overlapped, counts, i32, COLLECTIVES_SUM, &options));
  for (size_t r = 0; r < p; ++r) counts[r] = places[r] = overlapping[r] = 0;  // the group has copies
  OK(collectives_group_run(group));
  for (size_t r = 0; r < p; ++r) {
    const int32_t* const from = all + 5 * (p - 1 - r);
    CHECK(from[0] == -1 && from[4] == -1);
    CHECK(from[1] == (int32_t)r && from[2] == 7 && from[3] == (int32_t)(10 * r));
    CHECK(memcmp(from + 1, dense + 3 * r, sizeof in) == 0);
  }
  for (size_t i = 0; i < 3; ++i) {
    CHECK(part[i] == ranks + (int32_t)(p * (5 * (p - 1 - self) + 1 + i)));
    CHECK(overlapped[i] == ranks + (int32_t)(p * (2 * self + i)));
  }
  for (size_t r = 0; r < p; ++r) counts[r] = 3;
  options.displacements = equal;
  INVALID("displacements, which this call does not use",
          collectives_group_all_gather(group, in, all, 3, i32, &options));
  if (p > 1)
    INVALID("parts 0 and 1 of output overlap", collectives_group_all_gather_v(group, in, all, counts, i32, &options));
  collectives_group_free(group);
  OK(collectives_barrier(comm, NULL));
}

void GroupAnyCollectives(Comm* comm) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  const int last = collectives_size(comm) - 1;
  const collectives_data_type i32 = COLLECTIVES_I32;
  int32_t in[2] = {(int32_t)self, 1}, gathered[2 * kMost], scattered[2], sent[2] = {last, last}, reduced[2] = {0};
  int32_t whole[2 * kMost], lists[kMost][2], from[kMost][2], listed[2], gathered_v[2 * kMost], scattered_v[2];
  void* outputs[kMost];
  const void* inputs[kMost];
  size_t counts[kMost];
  if ((int)self != last) sent[0] = sent[1] = -1;
  for (size_t r = 0; r < p; ++r) {
    counts[r] = 2;
    outputs[r] = lists[p - 1 - r];  // not adjacent
    inputs[r] = from[p - 1 - r];
    for (size_t i = 0; i < 2; ++i) whole[2 * r + i] = from[p - 1 - r][i] = (int32_t)(r + i);
  }
  collectives_group* group;
  OK(collectives_group_create(comm, &group));
  OK(collectives_group_all_gather(group, in, gathered, 2, i32, NULL));
  OK(collectives_group_all_gather_v(group, in, gathered_v, counts, i32, NULL));
  OK(collectives_group_all_gather_list(group, in, outputs, counts, i32, NULL));
  OK(collectives_group_reduce_scatter(group, whole, scattered, 2, i32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_reduce_scatter_v(group, whole, scattered_v, counts, i32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_reduce_scatter_list(group, inputs, listed, counts, i32, COLLECTIVES_SUM, NULL));
  OK(collectives_group_broadcast(group, sent, sent, 2, i32, last, NULL));
  OK(collectives_group_reduce(group, in, reduced, 2, i32, COLLECTIVES_SUM, last, NULL));
  OK(collectives_group_barrier(group, NULL));
  const int ahead = (int)((self + 1) % p), behind = (int)((self + p - 1) % p);
  int32_t message[2] = {-1, -1};
  OK(collectives_group_send(group, in, 2, i32, ahead, 5, NULL));
  OK(collectives_group_recv(group, message, 2, i32, behind, 5, NULL));
  OK(collectives_group_run(group));
  CHECK(message[0] == (int32_t)behind && message[1] == 1);
  int32_t sum = 0;
  for (size_t r = 0; r < p; ++r) {
    sum += (int32_t)r;
    CHECK(gathered[2 * r] == (int32_t)r && gathered[2 * r + 1] == 1);
    CHECK(gathered_v[2 * r] == (int32_t)r && gathered_v[2 * r + 1] == 1);
    CHECK(lists[p - 1 - r][0] == (int32_t)r && lists[p - 1 - r][1] == 1);
  }
  for (size_t i = 0; i < 2; ++i) {
    CHECK(scattered[i] == (int32_t)(p * (self + i)));
    CHECK(scattered_v[i] == scattered[i] && listed[i] == scattered[i]);
    CHECK(sent[i] == last);
  }
  if ((int)self == last) CHECK(reduced[0] == sum && reduced[1] == (int32_t)p);
  INVALID("outputs is null", collectives_group_all_gather_list(group, in, NULL, counts, i32, NULL));
  INVALID("counts is null", collectives_group_reduce_scatter_list(group, inputs, in, NULL, i32, COLLECTIVES_SUM, NULL));
  INVALID("tag -1 is not in 0 to 1073741824", collectives_group_send(group, in, 2, i32, ahead, -1, NULL));
  INVALID("group is null", collectives_group_recv(NULL, message, 2, i32, behind, 5, NULL));
  collectives_group_free(group);
  OK(collectives_barrier(comm, NULL));
}

void CreateAGroup(Comm* comm) {
  const int rank = collectives_rank(comm), p = collectives_size(comm);
  int ranks[kMost];
  for (int r = 0; r < p; ++r) ranks[r] = p - 1 - r;
  Comm* part = NULL;
  INVALID("is not in the list", collectives_create_group(comm, ranks, 0, NULL, NULL, &part));
  const int twice[] = {rank, rank};
  INVALID("is listed twice", collectives_create_group(comm, twice, 2, "twice", NULL, &part));
  INVALID("ranks is null", collectives_create_group(comm, NULL, 1, NULL, NULL, &part));
  INVALID("comm is null", collectives_create_group(NULL, ranks, 1, NULL, NULL, &part));
  INVALID("part is null", collectives_create_group(comm, ranks, 1, NULL, NULL, NULL));
  CHECK(part == NULL);
  if (rank > 0 || p == 1) {  // rank 0 takes no part
    const size_t members = (size_t)(p == 1 ? 1 : p - 1);
    OK(collectives_create_group(comm, ranks, members, "all but rank 0", NULL, &part));
    CHECK(collectives_size(part) == (int)members && collectives_rank(part) == p - 1 - rank);
    int32_t sum = 1;
    OK(collectives_all_reduce(part, &sum, &sum, 1, COLLECTIVES_I32, COLLECTIVES_SUM, NULL));
    CHECK(sum == (int32_t)members);
    collectives_communicator_free(part);
  }
  OK(collectives_barrier(comm, NULL));
}
