// The test of the C interface: its situations, and helpers that they share.
//
// A situation is a function that every rank runs on a communicator. CMakeLists.txt reads the list below and enters each
// situation into ctest. The situations are defined in seven files:
//
//   c_calls.c        collectives, operations under way, groups, split, memory, plans and properties
//   c_parts.c        gather, scatter, scans, and displaced parts
//   c_blocks.c       all-to-all, and gather and scatter with counts of their own
//   c_groups.c       persistent calls, groups of any collectives, and communicators made by their members
//   c_extensions.c   the program's own operators and codecs, compression by top-k
//   c_errors.c       errors that all ranks report, and what remains afterwards
//   c_refusals.c     arguments, options and structs that a call refuses
#pragma once

#include <collectives/collectives.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef collectives_communicator Comm;

// List of the situations: name, minimum number of ranks, and where the ranks run:
//
//   together   on one host
//   apart      each on a host of its own, as far as the library knows
//   alone      one process that no launcher started
#define SITUATIONS(S)                                \
  S(ReduceEveryTypeByEveryOp, 1, together)           \
  S(ReduceBooleansBitsAndPairs, 1, together)         \
  S(ReduceComplexNumbersAndSmallFloats, 1, together) \
  S(ScaleByNothing, 1, together)                     \
  S(ScatterGatherAndBroadcast, 1, together)          \
  S(ScatterGatherAndBroadcastApart, 2, apart)        \
  S(SendAndReceive, 1, together)                     \
  S(SendAndReceiveApart, 2, apart)                   \
  S(GatherAndScatter, 1, together)                   \
  S(GatherAndScatterApart, 2, apart)                 \
  S(SendABlockToEachRank, 1, together)               \
  S(SendABlockToEachRankApart, 2, apart)             \
  S(AreToldWhichBlockDiffers, 2, together)           \
  S(ScanInRankOrder, 1, together)                    \
  S(PlacePartsByDisplacements, 1, together)          \
  S(RefuseWrongParts, 1, together)                   \
  S(OverlapOperations, 1, together)                  \
  S(WaitForALittleTellsWhetherItIsDone, 2, together) \
  S(FuseAGroup, 1, together)                         \
  S(RefuseAGroupThatOverlaps, 1, together)           \
  S(StartPersistentCalls, 1, together)               \
  S(StartPersistentBlocks, 1, together)              \
  S(StartPersistentMessages, 1, together)            \
  S(GroupAnyCollectives, 1, together)                \
  S(GroupBlocksAndScans, 1, together)                \
  S(GroupDisplacedParts, 1, together)                \
  S(CreateAGroup, 1, together)                       \
  S(Split, 1, together)                              \
  S(AllocateMemory, 1, together)                     \
  S(NoMemoryOfAGpu, 1, together)                     \
  S(ApplyAnOpOfTheirOwn, 1, together)                \
  S(ApplyAnOpToElementsOfSeveralBytes, 1, together)  \
  S(SendBf16, 2, apart)                              \
  S(SendByACodecOfTheirOwn, 2, apart)                \
  S(ChooseTopKAndContinueFromACheckpoint, 2, apart)  \
  S(ExplainThePlan, 1, together)                     \
  S(TellTheirProperties, 1, together)                \
  S(TakeNothing, 1, together)                        \
  S(AreToldWhoDisagrees, 2, together)                \
  S(AreToldWhichRankRefuses, 2, together)            \
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

#define DECLARE(name, ranks, where) void name(Comm* comm);
SITUATIONS(DECLARE)
#undef DECLARE

#define CHECK(condition)                                                                                    \
  do {                                                                                                      \
    if (!(condition)) {                                                                                     \
      fprintf(stderr, "%s:%d: %s: not so: %s (last error: %s)\n", __FILE__, __LINE__, __func__, #condition, \
              collectives_last_error());                                                                    \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define OK(call) CHECK((call) == COLLECTIVES_SUCCESS)
// Requires that `call` fails with COLLECTIVES_ERROR_`code` and that the error text contains `text`.
#define FAILS(code, text, call)                                       \
  do {                                                                \
    CHECK((call) == COLLECTIVES_ERROR_##code);                        \
    CHECK(collectives_last_error_code() == COLLECTIVES_ERROR_##code); \
    CHECK(strstr(collectives_last_error(), text) != NULL);            \
    CHECK(strchr(collectives_last_error(), '\n') == NULL);            \
  } while (0)
#define INVALID(text, call) FAILS(INVALID_ARGUMENT, text, call)

enum { kCount = 37, kMost = 1000 };

size_t size_of(const Comm* comm);

// Returns an array of `count` elements equal to `value`, with room for one more. The caller frees it.
float* floats(size_t count, float value);

// Waits for an operation that may not fail, and frees it.
void finish(collectives_work* work);

// Fails unless all ranks hold the same bytes.
void check_same_everywhere(Comm* comm, const void* bytes, size_t count);

// An operator for collectives_user_op_create(), and a codec's functions, as c_extensions.c describes them.
void compose(void* context, const void* next, void* accumulated, size_t count, collectives_data_type type);
size_t halves_bytes(void* context, size_t count);
void halves_encode(void* context, const float* values, size_t count, void* bytes);
void halves_decode(void* context, const void* bytes, float* values, size_t count);
