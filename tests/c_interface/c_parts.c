// Tests of the C interface: gather, scatter, scans, and parts with displacements. Each test is a function, called a
// situation (c_interface_test.h), and all ranks run it.
#include "c_interface_test.h"

// Returns the element with index i of rank r's input.
static float element(size_t r, size_t i) { return (float)(100 * r + i); }

static void gather_and_scatter(Comm* comm, int async) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  const collectives_options options = {.size = sizeof options, .name = "part", .timeout_seconds = 60};
  collectives_work* work = NULL;
  for (size_t root = 0; root < p; ++root) {
    float* whole = floats(p * kCount, -1);
    float part[kCount];
    for (size_t i = 0; i < kCount; ++i) part[i] = element(self, i);
    void* const all = self == root ? whole : NULL;
    if (async) {
      OK(collectives_gather_async(comm, part, all, kCount, COLLECTIVES_F32, (int)root, &options, &work));
      finish(work);
    } else {
      OK(collectives_gather(comm, part, all, kCount, COLLECTIVES_F32, (int)root, &options));
    }
    for (size_t i = 0; i < p * kCount; ++i) CHECK(whole[i] == (self == root ? element(i / kCount, i % kCount) : -1.0F));
    memset(part, 0, sizeof part);
    if (async) {
      OK(collectives_scatter_async(comm, all, part, kCount, COLLECTIVES_F32, (int)root, NULL, &work));
      finish(work);
    } else {
      OK(collectives_scatter(comm, all, part, kCount, COLLECTIVES_F32, (int)root, NULL));
    }
    for (size_t i = 0; i < kCount; ++i) CHECK(part[i] == element(self, i));
    free(whole);
  }
}

void GatherAndScatter(Comm* comm) {
  gather_and_scatter(comm, 0);
  gather_and_scatter(comm, 1);
}
void GatherAndScatterApart(Comm* comm) { GatherAndScatter(comm); }

void ScanInRankOrder(Comm* comm) {
  const size_t self = (size_t)collectives_rank(comm);
  collectives_work* work = NULL;
  int32_t mine[kCount], result[kCount];
  for (size_t i = 0; i < kCount; ++i) mine[i] = (int32_t)(self + i);
  // Rank r gets the sum of r + 1 numbers, and without its own number the sum of r numbers.
  const int32_t terms = (int32_t)self + 1, before = (int32_t)(self * (self + 1) / 2);
  OK(collectives_scan(comm, mine, result, kCount, COLLECTIVES_I32, COLLECTIVES_SUM, NULL));
  for (size_t i = 0; i < kCount; ++i) CHECK(result[i] == before + terms * (int32_t)i);
  OK(collectives_scan_async(comm, mine, result, kCount, COLLECTIVES_I32, COLLECTIVES_MAX, NULL, &work));
  finish(work);
  for (size_t i = 0; i < kCount; ++i) CHECK(result[i] == mine[i]);

  memset(result, 0, sizeof result);
  void* const output = self == 0 ? NULL : result;
  OK(collectives_exclusive_scan(comm, mine, output, kCount, COLLECTIVES_I32, COLLECTIVES_SUM, NULL));
  for (size_t i = 0; i < kCount; ++i)
    CHECK(result[i] == (self == 0 ? 0 : before - (int32_t)self + (int32_t)(self * i)));
  OK(collectives_exclusive_scan_async(comm, mine, output, kCount, COLLECTIVES_I32, COLLECTIVES_MIN, NULL, &work));
  finish(work);
  for (size_t i = 0; i < kCount; ++i) CHECK(result[i] == (self == 0 ? 0 : (int32_t)i));
}

void PlacePartsByDisplacements(Comm* comm) {
  const size_t p = size_of(comm), self = (size_t)collectives_rank(comm);
  size_t counts[kMost], displacements[kMost];
  for (size_t r = 0; r < p; ++r) {  // backwards, two elements apart
    counts[r] = 3;
    displacements[r] = 5 * (p - 1 - r);
  }
  const collectives_options options = {.size = sizeof options, .displacements = displacements};
  float* whole = floats(5 * p, -1);
  const float part[3] = {element(self, 0), element(self, 1), element(self, 2)};
  OK(collectives_all_gather_v(comm, part, whole, counts, COLLECTIVES_F32, &options));
  for (size_t i = 0; i < 5 * p; ++i) CHECK(whole[i] == (i % 5 < 3 ? element(p - 1 - i / 5, i % 5) : -1.0F));
  float sum[3];
  OK(collectives_reduce_scatter_v(comm, whole, sum, counts, COLLECTIVES_F32, COLLECTIVES_SUM, &options));
  for (size_t i = 0; i < 3; ++i) CHECK(sum[i] == (float)p * element(self, i));

  collectives_persistent *gather = NULL, *scatter = NULL;
  OK(collectives_persistent_all_gather_v(comm, part, whole, counts, COLLECTIVES_F32, &options, &gather));
  OK(collectives_persistent_reduce_scatter_v(comm, whole, sum, counts, COLLECTIVES_F32, COLLECTIVES_SUM, &options,
                                             &scatter));
  for (size_t i = 0; i < 5 * p; ++i) whole[i] = -1;
  memset(sum, 0, sizeof sum);
  OK(collectives_persistent_start(gather));
  OK(collectives_persistent_wait(gather));
  for (size_t i = 0; i < 5 * p; ++i) CHECK(whole[i] == (i % 5 < 3 ? element(p - 1 - i / 5, i % 5) : -1.0F));
  OK(collectives_persistent_start(scatter));
  OK(collectives_persistent_wait(scatter));
  for (size_t i = 0; i < 3; ++i) CHECK(sum[i] == (float)p * element(self, i));
  collectives_persistent_free(gather);
  collectives_persistent_free(scatter);
  free(whole);
}

void RefuseWrongParts(Comm* comm) {
  const size_t p = size_of(comm);
  const int beyond = (int)p;
  float* whole = floats(5 * p, 0);
  float part[3] = {0};
  size_t counts[kMost], displacements[kMost];
  for (size_t r = 0; r < p; ++r) counts[r] = 3, displacements[r] = 0;
  const collectives_options options = {.size = sizeof options, .displacements = displacements};
  INVALID("is not a rank", collectives_gather(comm, part, whole, 1, COLLECTIVES_F32, beyond, NULL));
  INVALID("is not a rank", collectives_scatter(comm, whole, part, 1, COLLECTIVES_F32, -1, NULL));
  INVALID("input is null", collectives_scan(comm, NULL, part, 3, COLLECTIVES_F32, COLLECTIVES_SUM, NULL));
  INVALID("displacements, which this call does not use",
          collectives_all_gather(comm, part, whole, 3, COLLECTIVES_F32, &options));
  if (p > 1)
    INVALID("parts 0 and 1 of output overlap",
            collectives_all_gather_v(comm, part, whole, counts, COLLECTIVES_F32, &options));
  free(whole);
}
