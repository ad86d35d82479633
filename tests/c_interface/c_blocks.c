// Tests of the C functions in which each pair of ranks, or each rank and the root, has a block of its own.
#include <stdint.h>
#include <stdlib.h>

#include "c_interface_test.h"

// Element i of the block that rank `from` sends to rank `to`.
static int32_t element(size_t from, size_t to, size_t i) { return (int32_t)(from * 10000 + to * 100 + i); }
// Elements of that block.
static size_t count_of(size_t from, size_t to) { return (from + 2 * to) % 4; }

static void send_equal_blocks(Comm* comm, int async) {
  enum { kEach = 5 };
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  int32_t input[kMost], output[kMost];
  collectives_work* work;
  for (size_t r = 0; r < p; ++r)
    for (size_t i = 0; i < kEach; ++i) input[r * kEach + i] = element(self, r, i);
  if (async) {
    OK(collectives_all_to_all_async(comm, input, output, kEach, COLLECTIVES_I32, NULL, &work));
    finish(work);
  } else {
    OK(collectives_all_to_all(comm, input, output, kEach, COLLECTIVES_I32, NULL));
  }
  for (size_t r = 0; r < p; ++r)
    for (size_t i = 0; i < kEach; ++i) CHECK(output[r * kEach + i] == element(r, self, i));
}

static void send_unequal_blocks(Comm* comm, int async) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  size_t sent[kMost], received[kMost], displacements[kMost];
  int32_t input[kMost], output[kMost];
  collectives_work* work;
  size_t end = 0;
  for (size_t r = 0; r < p; ++r) {
    sent[r] = count_of(self, r);
    received[r] = count_of(r, self);
    displacements[r] = 7 * (p - 1 - r);
    for (size_t i = 0; i < sent[r]; ++i) input[end++] = element(self, r, i);
  }
  for (size_t i = 0; i < 7 * p; ++i) output[i] = -1;
  if (async) {
    OK(collectives_all_to_all_v_async(comm, input, sent, NULL, output, received, displacements, COLLECTIVES_I32, NULL,
                                      &work));
    finish(work);
  } else {
    OK(collectives_all_to_all_v(comm, input, sent, NULL, output, received, displacements, COLLECTIVES_I32, NULL));
  }
  for (size_t r = 0; r < p; ++r)
    for (size_t i = 0; i < 7; ++i) CHECK(output[displacements[r] + i] == (i < received[r] ? element(r, self, i) : -1));
}

static void gather_and_scatter_unequal_parts(Comm* comm, int async) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  const int root = (int)p - 1;
  const size_t mine = count_of(self, 1);
  size_t counts[kMost], displacements[kMost];
  int32_t part[4], back[4], whole[kMost];
  collectives_work* work;
  for (size_t r = 0; r < p; ++r) counts[r] = count_of(r, 1), displacements[r] = 5 * r;
  for (size_t i = 0; i < mine; ++i) part[i] = element(self, 1, i);
  const int at_root = collectives_rank(comm) == root;
  const size_t *const lengths = at_root ? counts : NULL, *const places = at_root ? displacements : NULL;
  if (async) {
    OK(collectives_gather_v_async(comm, part, mine, at_root ? whole : NULL, lengths, places, COLLECTIVES_I32, root,
                                  NULL, &work));
    finish(work);
    OK(collectives_scatter_v_async(comm, at_root ? whole : NULL, lengths, places, back, mine, COLLECTIVES_I32, root,
                                   NULL, &work));
    finish(work);
  } else {
    OK(collectives_gather_v(comm, part, mine, at_root ? whole : NULL, lengths, places, COLLECTIVES_I32, root, NULL));
    OK(collectives_scatter_v(comm, at_root ? whole : NULL, lengths, places, back, mine, COLLECTIVES_I32, root, NULL));
  }
  for (size_t r = 0; at_root && r < p; ++r)
    for (size_t i = 0; i < counts[r]; ++i) CHECK(whole[displacements[r] + i] == element(r, 1, i));
  for (size_t i = 0; i < mine; ++i) CHECK(back[i] == part[i]);
}

void SendABlockToEachRank(Comm* comm) {
  for (int async = 0; async < 2; ++async) {
    send_equal_blocks(comm, async);
    send_unequal_blocks(comm, async);
    gather_and_scatter_unequal_parts(comm, async);
  }
  INVALID("input_counts is null",
          collectives_all_to_all_v(comm, NULL, NULL, NULL, NULL, NULL, NULL, COLLECTIVES_I32, NULL));
  const size_t p = size_of(comm), too_many = SIZE_MAX / p + 1;  // p times as many are 0 to p - 1, modulo 2^64
  int32_t data[3] = {0}, other[3];
  if (p > 1) INVALID("overflow", collectives_all_to_all(comm, data, other, too_many, COLLECTIVES_I32, NULL));
}

void SendABlockToEachRankApart(Comm* comm) { SendABlockToEachRank(comm); }

void AreToldWhichBlockDiffers(Comm* comm) {
  const size_t p = size_of(comm);
  size_t sent[kMost], received[kMost];
  int32_t input[kMost], output[kMost];
  for (size_t r = 0; r < p; ++r) sent[r] = received[r] = 2;
  for (size_t i = 0; i < 2 * p; ++i) input[i] = 0;
  if (collectives_rank(comm) == 1) received[0] = 3;
  FAILS(MISMATCH, "rank 0 sends 2 elements to rank 1, which expects 3",
        collectives_all_to_all_v(comm, input, sent, NULL, output, received, NULL, COLLECTIVES_I32, NULL));
}
