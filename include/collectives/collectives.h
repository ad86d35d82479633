// Interface in C99: collectives for programs in C and every language that can call C. docs/c.md introduces it.
//
//   collectives_communicator* comm;
//   if (collectives_communicator_from_environment(NULL, &comm) != COLLECTIVES_SUCCESS) return fail();
//   if (collectives_all_reduce(comm, gradient, mean, 1000, COLLECTIVES_F32, COLLECTIVES_AVERAGE, NULL)) return fail();
//   collectives_communicator_free(comm);
//   ...
//   int fail(void) { return fprintf(stderr, "%s\n", collectives_last_error()), 1; }
//
// Every function has these properties:
//
// Errors. Most functions that can fail return a collectives_error. If a function that makes a handle fails, it sets the
// handle to NULL. collectives_last_error() returns the text of the error. Similar functions return the ranks and the
// operation of the error. A function that returns a property, such as collectives_rank(), returns -1, 0 or NULL for a
// null handle. A null pointer that is not allowed gives COLLECTIVES_ERROR_INVALID_ARGUMENT. If memory cannot be
// allocated, the error is COLLECTIVES_ERROR_SYSTEM. No C++ exception leaves the library.
//
// Handles. A handle is a pointer to an object of the library. The last argument of a function that makes a handle is
// the address of the pointer. A function ..._free() frees the handle, and accepts NULL. An object from which a handle
// was made may be freed before the handle. The comments of functions state exceptions.
//
// Structs. The first field of each struct is `size`, which the program sets to the size of the struct. The size tells
// the library which fields the program knows:
//
//   collectives_options options = {.size = sizeof options, .wire = "bf16"};
//
// Every other field of an options struct may be 0 or NULL, which selects the field's default. Exception: a `factor` of
// 0 is the number 0. New fields can therefore be added at the end. Programs and libraries of different versions can
// therefore work together.
//
// Every text is UTF-8 and ends with '\0'. The library copies text arguments. Counts are numbers of elements, sizes are
// bytes, and times are seconds.
//
// Threads. A communicator and the handles made from it accept one call at a time. Exceptions: any thread may call
// collectives_abort(), and one other thread may make point-to-point calls. A thread inside a call must not be cancelled
// (pthread_cancel). In a child of fork(), calls that communicate fail with COLLECTIVES_ERROR_INVALID_ARGUMENT on an
// inherited communicator.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/export.hpp"  // only the macro COLLECTIVES_EXPORT

#ifdef __cplusplus
#define COLLECTIVES_ENUM : int  // makes a value without an enumerator an error instead of undefined behavior
extern "C" {
#else
#define COLLECTIVES_ENUM
#endif

/// Result of a call.
///
/// | error            | the communicator afterwards | what to do                                                    |
/// | ---------------- | --------------------------- | ------------------------------------------------------------- |
/// | INVALID_ARGUMENT | usable if all ranks fail    | correct the call                                              |
/// | UNSUPPORTED      | usable if all ranks fail    | choose another backend, type or build                         |
/// | MISMATCH         | broken                      | make the ranks issue the same calls                           |
/// | TIMEOUT          | broken                      | find the missing rank, which the text names                   |
/// | PEER_LOST        | broken                      | restart the lost rank, build a new communicator               |
/// | ABORTED          | broken                      | read the reason: a rank called collectives_abort()            |
/// | BOOTSTRAP        | was not made                | correct the address, port or variable that the text names     |
/// | SYSTEM           | see below                   | raise the limit that the text names                           |
///
/// After SYSTEM from a collective or a work all ranks have failed, and the communicator is broken. The functions that
/// allocate or register memory fail on this rank only and leave it usable. collectives/error.hpp lists all cases.
///
/// On a broken communicator, collectives_abort(), collectives_explain(), the functions that return its properties, and
/// collectives_communicator_free() still work. Its memory stays valid. Every call that needs the other ranks fails with
/// the first error again.
///
/// The buffers of a failed operation belong to the program again. Exception: a rank whose process is stopped may still
/// access the buffers (collectives/error.hpp). Inputs out of place are unchanged. Outputs, and buffers in place, are
/// undefined: the original values of a buffer in place are lost.
typedef enum collectives_error COLLECTIVES_ENUM {
  COLLECTIVES_SUCCESS = 0,
  COLLECTIVES_ERROR_INVALID_ARGUMENT = 1,
  COLLECTIVES_ERROR_UNSUPPORTED = 2,
  COLLECTIVES_ERROR_MISMATCH = 3,
  COLLECTIVES_ERROR_TIMEOUT = 4,
  COLLECTIVES_ERROR_PEER_LOST = 5,
  COLLECTIVES_ERROR_ABORTED = 6,
  COLLECTIVES_ERROR_BOOTSTRAP = 7,
  COLLECTIVES_ERROR_SYSTEM = 8
} collectives_error;

typedef enum collectives_collective COLLECTIVES_ENUM {
  COLLECTIVES_ALL_REDUCE = 0,
  COLLECTIVES_REDUCE_SCATTER = 1,
  COLLECTIVES_ALL_GATHER = 2,
  COLLECTIVES_BROADCAST = 3,
  COLLECTIVES_REDUCE = 4,
  COLLECTIVES_BARRIER = 5,
  COLLECTIVES_ALL_TO_ALL = 6,
  COLLECTIVES_GATHER = 7,
  COLLECTIVES_SCATTER = 8,
  COLLECTIVES_SCAN = 9,
  COLLECTIVES_EXCLUSIVE_SCAN = 10
} collectives_collective;

/// Element types: IEEE floats, bf16 (the upper half of an f32), 8-bit floats of the Open Compute Project, and integers
/// in two's complement, in the byte order of the processor. A boolean is a byte, and a byte other than 0 is true. A
/// complex number consists of two floats, the real part first. The types that end in _INDEX are structs of a value and
/// an int32_t, as MPI's pair types are.
typedef enum collectives_data_type COLLECTIVES_ENUM {
  COLLECTIVES_F32 = 0,
  COLLECTIVES_F64 = 1,
  COLLECTIVES_F16 = 2,
  COLLECTIVES_BF16 = 3,
  COLLECTIVES_I8 = 4,
  COLLECTIVES_U8 = 5,
  COLLECTIVES_I32 = 6,
  COLLECTIVES_U32 = 7,
  COLLECTIVES_I64 = 8,
  COLLECTIVES_U64 = 9,
  COLLECTIVES_BOOLEAN = 10,
  COLLECTIVES_I16 = 11,
  COLLECTIVES_U16 = 12,
  COLLECTIVES_F8E4M3 = 13,
  COLLECTIVES_F8E5M2 = 14,
  COLLECTIVES_COMPLEX64 = 15,
  COLLECTIVES_COMPLEX128 = 16,
  COLLECTIVES_F32_INDEX = 17,  ///< struct { float value; int32_t index; }
  COLLECTIVES_F64_INDEX = 18,
  COLLECTIVES_I64_INDEX = 19,
  COLLECTIVES_I32_INDEX = 20,
  COLLECTIVES_I16_INDEX = 21
} collectives_data_type;

/// Reductions, which combine contributions.
typedef enum collectives_op COLLECTIVES_ENUM {
  /// Integers wrap. 16-bit and 8-bit floats are added in f32 in rank order and rounded once. Booleans: whether any is
  /// true.
  COLLECTIVES_SUM = 0,
  /// Floats: the sum divided by the number of ranks. Integers: the mean, truncated toward zero.
  COLLECTIVES_AVERAGE = 1,
  COLLECTIVES_PRODUCT = 2,
  COLLECTIVES_MIN = 3,  ///< NaN if any contribution is NaN. -0 is less than +0.
  COLLECTIVES_MAX = 4,
  /// Sum of the contributions times collectives_options::factor. Floats and complex numbers only.
  COLLECTIVES_PRE_SCALED_SUM = 5,
  COLLECTIVES_USER_OP = 6,      ///< Op of the program: collectives_options::user_op.
  COLLECTIVES_BITWISE_AND = 7,  ///< Bitwise and logical ops: integers and booleans only.
  COLLECTIVES_BITWISE_OR = 8,
  COLLECTIVES_BITWISE_XOR = 9,
  COLLECTIVES_LOGICAL_AND = 10,  ///< Logical ops: 0 is false, other values are true, and the result is 0 or 1.
  COLLECTIVES_LOGICAL_OR = 11,
  COLLECTIVES_LOGICAL_XOR = 12,
  COLLECTIVES_MIN_LOC = 13,  ///< Least value with its index, the lowest if values are equal. Types with _INDEX only.
  COLLECTIVES_MAX_LOC = 14
} collectives_op;

typedef enum collectives_switch COLLECTIVES_ENUM {
  COLLECTIVES_DEFAULT = 0,
  COLLECTIVES_ON = 1,
  COLLECTIVES_OFF = 2
} collectives_switch;

typedef struct collectives_communicator collectives_communicator;    ///< Fixed set of ranks.
typedef struct collectives_threads collectives_threads;              ///< Rendezvous of ranks that are threads.
typedef struct collectives_work collectives_work;                    ///< Asynchronous operation.
typedef struct collectives_persistent collectives_persistent;        ///< Call that is started many times.
typedef struct collectives_group collectives_group;                  ///< Collectives that are performed together.
typedef struct collectives_memory collectives_memory;                ///< Memory that ranks of a host share.
typedef struct collectives_device_memory collectives_device_memory;  ///< Memory of a GPU that a communicator knows.
typedef struct collectives_user_op collectives_user_op;              ///< Reduction of the program.
typedef struct collectives_codec collectives_codec;                  ///< Codec of the program.
typedef struct collectives_top_k collectives_top_k;                  ///< Compressor that sends the largest elements.

// ---- errors, and functions that need no communicator ----

/// Returns the version of the loaded library, such as "0.2.0".
COLLECTIVES_EXPORT const char* collectives_version(void);
/// Returns the name of an error, such as "timeout". Returns "success" for 0, and "unknown error" for a value without an
/// enumerator.
COLLECTIVES_EXPORT const char* collectives_error_name(collectives_error error);
/// Returns the bytes of one element, or 0 if `type` is no type.
COLLECTIVES_EXPORT size_t collectives_size_of(collectives_data_type type);

/// Returns one line about the last failure in this thread: "all_reduce #17: rank 3 passed 4096 x bf16,
/// ranks 0-2 passed 4095 x bf16". Empty if none has failed. The text is valid until the next failure in this thread.
/// Success does not change it.
COLLECTIVES_EXPORT const char* collectives_last_error(void);
/// Returns the code of the last failure in this thread, or COLLECTIVES_SUCCESS if there is none.
COLLECTIVES_EXPORT collectives_error collectives_last_error_code(void);
/// Returns the rank that reported the failure, or -1 if it is unknown.
COLLECTIVES_EXPORT int collectives_last_error_rank(void);
/// Returns the rank that caused the failure, or -1 if no rank did or it is unknown.
COLLECTIVES_EXPORT int collectives_last_error_peer(void);
/// Returns the operation that failed, such as "all_reduce #17", or an empty text. Valid as long as
/// collectives_last_error().
COLLECTIVES_EXPORT const char* collectives_last_error_operation(void);

/// Frees text and bytes that a function has returned to the program, such as collectives_explain() and
/// collectives_top_k_save().
COLLECTIVES_EXPORT void collectives_free(void* text_or_bytes);

// ---- communicators ----

/// Options of a communicator. Environment variables, such as COLLECTIVES_TUNING, override the defaults, but not the
/// values that a program sets.
typedef struct collectives_communicator_options {
  size_t size;          ///< sizeof(collectives_communicator_options)
  const char* backend;  ///< "ring", "hierarchical", "reduce_to_one", "auto". NULL: COLLECTIVES_BACKEND, or "auto".
  /// Deadline of each call and of construction. 0: COLLECTIVES_TIMEOUT, or 600. INFINITY: none.
  double timeout_seconds;
  double stall_report_seconds;  ///< Delay after which a call is reported on stderr. 0: 30. INFINITY: never.
  /// "shared_memory", or "tcp", "ucx", "mpi" for every message. NULL: COLLECTIVES_TRANSPORT, or `wire` between hosts.
  const char* transport;
  const char* wire;  ///< "tcp", "ucx", "mpi" between hosts. NULL: COLLECTIVES_WIRE, or the best that all ranks have.
  collectives_switch deterministic;    ///< Default: COLLECTIVES_DETERMINISTIC, or off.
  collectives_switch progress_thread;  ///< Default: only with spare cores, or with NCCL.
  /// On: buffers may be on the GPU that is current to the calling thread; UNSUPPORTED if there is none. Default: on if
  /// this process already uses CUDA.
  collectives_switch device_buffers;
  collectives_switch reserved;  ///< Must be COLLECTIVES_DEFAULT. A later version may use it.
  /// Faults to cause, so that the program can test how it handles them: "kill rank=2 call=17", see
  /// docs/fault_injection.md.
  /// NULL: COLLECTIVES_INJECT, except in collectives_split(). "none": no faults.
  const char* inject;
} collectives_communicator_options;

/// Makes a communicator of the ranks that mpirun, srun, torchrun, TF_CONFIG or collectives_run started. Without any of
/// them it has one rank. `options` may be NULL.
///
/// Blocks until all ranks have joined. Fails with BOOTSTRAP and names the wrong variable, port or host. Fails with
/// TIMEOUT and names the missing ranks. collectives_mpi.h, which needs MPI, makes a communicator of an MPI_Comm.
COLLECTIVES_EXPORT collectives_error collectives_communicator_from_environment(
    const collectives_communicator_options* options, collectives_communicator** comm);

/// Makes a rendezvous of `ranks` ranks that are threads of this process. One thread makes it and passes it to the
/// others.
COLLECTIVES_EXPORT collectives_error collectives_threads_create(int ranks, collectives_threads** threads);
/// Makes a communicator of the threads. This one becomes rank `rank`. Each rank calls it once per communicator, from a
/// thread of its own. Further communicators may follow one after another. `options` may be NULL.
COLLECTIVES_EXPORT collectives_error
collectives_communicator_from_threads(collectives_threads* threads, int rank,
                                      const collectives_communicator_options* options, collectives_communicator** comm);
/// Frees the rendezvous. Requires that no thread uses it. Its communicators stay valid.
COLLECTIVES_EXPORT void collectives_threads_free(collectives_threads* threads);

/// Makes a communicator for each distinct `color` (0 and up). Its ranks are ordered by `key`, then by rank in `comm`.
///
/// Collective over `comm`. A rank with a negative color takes part and receives NULL. An option that is not set has the
/// value of `comm`.
COLLECTIVES_EXPORT collectives_error collectives_split(collectives_communicator* comm, int color, int key,
                                                       const collectives_communicator_options* options,
                                                       collectives_communicator** part);

/// Makes a communicator of the `count` ranks in `ranks`. Only these ranks call it. Rank ranks[i] has rank i there. All
/// members pass equal lists and names; `name` may be NULL. An option that is not set has the value of `comm`.
///
/// Fails with INVALID_ARGUMENT if a rank is out of range or listed twice, or if the caller is not listed. Fails with
/// MISMATCH if another member passed another list with this name, with TIMEOUT and PEER_LOST as a call does. `comm`
/// then stays usable. All members may call again at once, also with this name.
COLLECTIVES_EXPORT collectives_error collectives_create_group(collectives_communicator* comm, const int* ranks,
                                                              size_t count, const char* name,
                                                              const collectives_communicator_options* options,
                                                              collectives_communicator** part);

/// Frees the communicator without waiting for the other ranks. Their unfinished operations fail with PEER_LOST. Its
/// works may be freed later, its groups must be freed before.
COLLECTIVES_EXPORT void collectives_communicator_free(collectives_communicator* comm);

/// Returns the rank, from 0 to size - 1.
COLLECTIVES_EXPORT int collectives_rank(const collectives_communicator* comm);
/// Returns the number of ranks.
COLLECTIVES_EXPORT int collectives_size(const collectives_communicator* comm);
/// Returns "shared_memory", "local" (ranks are threads), "tcp", or a pair such as "shared_memory+tcp". Valid as long as
/// `comm` exists.
COLLECTIVES_EXPORT const char* collectives_transport(const collectives_communicator* comm);
/// Returns the bytes that this rank has passed to transports and intra-host collectives since construction.
COLLECTIVES_EXPORT uint64_t collectives_bytes_sent(const collectives_communicator* comm);
/// Returns the part of collectives_bytes_sent() that is payload of messages to other hosts.
COLLECTIVES_EXPORT uint64_t collectives_bytes_sent_to_other_hosts(const collectives_communicator* comm);

/// Statistics of encoded messages.
typedef struct collectives_coding_report {
  size_t size;          ///< sizeof(collectives_coding_report), set by the caller
  uint64_t raw_bytes;   ///< Bytes of the f32 values in the encoded messages that this rank sent.
  uint64_t sent_bytes;  ///< Bytes of these messages.
  double seconds;       ///< Seconds of encoding sent values, and of decoding and adding received ones.
} collectives_coding_report;
/// Fills `report` with the statistics since construction.
COLLECTIVES_EXPORT collectives_error collectives_coding(const collectives_communicator* comm,
                                                        collectives_coding_report* report);

/// Fails every current and later operation of this communicator, on every rank, with ABORTED and `reason`. Ranks inside
/// a call fail within a second. Other ranks fail at their next call. Any thread may call it.
COLLECTIVES_EXPORT collectives_error collectives_abort(collectives_communicator* comm, const char* reason);
/// Progresses unfinished operations without waiting. Their works report their errors.
COLLECTIVES_EXPORT collectives_error collectives_progress(collectives_communicator* comm);

// ---- collectives ----
//
// Every rank makes each call, with equal counts, type, op, root and options. If ranks disagree, all fail with MISMATCH.
// The text names the arguments of each rank. Counts may be 0, and buffers may then be NULL.
//
// A call may run in place as its comment says. Any other overlap of input and output is INVALID_ARGUMENT. Every rank
// has the same bits. Operations of one communicator run in the order of issue. `options` may be NULL. From the second
// call with equal arguments on, blocking calls allocate no memory.
//
// An ..._async() function returns at once. Its buffers, and the codec, compressor and user op in its options, must stay
// valid until the operation ends. It has ended if collectives_work_wait() or collectives_work_test() has reported the
// end, or if collectives_work_free() has returned.

/// Options of one call. An option that is not set has the communicator's value.
typedef struct collectives_options {
  size_t size;             ///< sizeof(collectives_options)
  const char* backend;     ///< Backend: "ring", "hierarchical", "reduce_to_one", "auto".
  const char* name;        ///< Name of the tensor, at most 256 bytes, equal on all ranks. A compressor needs it.
  double timeout_seconds;  ///< Deadline. 0: the communicator's. INFINITY: none.
  /// Format of f32 values between ranks that share no memory: "bf16", "f16", "int8", "mx_f8e4m3", "mx_f8e5m2".
  /// NULL, "f32": unchanged. A value is rounded twice at most, for any number of ranks.
  ///
  /// Values are sent unchanged if that is estimated to be as fast, unless `deterministic` is on. collectives_explain()
  /// states the reason.
  const char* wire;
  const collectives_codec* codec;  ///< Codec of the program, in place of `wire`.
  /// Compressor that sends only the largest elements. Requires an all_reduce of f32 by sum or average, and `name`.
  /// `wire` or `codec` is the format of the values if everything is sent.
  collectives_top_k* compressor;
  const collectives_user_op* user_op;  ///< Op of COLLECTIVES_USER_OP. NULL for other ops.
  double factor;  ///< Factor of COLLECTIVES_PRE_SCALED_SUM, which requires options. 0 is a factor, too.
  collectives_switch deterministic;  ///< On: the same bits for every backend, segmentation and size.
  collectives_switch force;          ///< On: compress even if that is slower.
  /// Stream of a call on device memory: the address of a cudaStream_t, which may be CUDA's default stream. The
  /// operation begins after the work that the stream contains at the call.
  ///
  /// A blocking call may return before the GPU has done the operation. Work added to the stream afterwards sees the
  /// result. An asynchronous operation is finished when the result is complete.
  ///
  /// NULL: the buffers must be ready at the call. The result is complete when it ends.
  void* const* stream;
  /// First element of each rank's part, in a call with a list of counts. One number for each rank, equal on all ranks
  /// unless the comment of the call says otherwise. It is not needed after the call. NULL: one part after another.
  ///
  /// Parts of an output must not overlap. Elements between them keep their values. The buffer with all parts ends with
  /// its last part.
  const size_t* displacements;
} collectives_options;

/// Reduces `input` element by element over all ranks. Every rank receives the result. Both buffers have `count`
/// elements. In place: input == output.
COLLECTIVES_EXPORT collectives_error collectives_all_reduce(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_reduce_async(collectives_communicator* comm, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options,
                                                                  collectives_work** work);

/// Reduces `input` over all ranks. Rank r receives part r of the result. The output has `count` elements, and the input
/// size * count. In place: output is part `rank` of the input.
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter(collectives_communicator* comm, const void* input,
                                                                void* output, size_t count, collectives_data_type type,
                                                                collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_async(collectives_communicator* comm, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, collectives_op op,
                                                                      const collectives_options* options,
                                                                      collectives_work** work);

/// Does a reduce-scatter with parts of unequal length: counts[r] elements for rank r. `counts` has one count per rank
/// and is equal on all ranks. It is not needed after the call. The input has the sum of the counts, the output
/// counts[rank]. With collectives_options::displacements, parts of the input may lie anywhere and may overlap. In place:
/// output is part `rank` of the input, which then overlaps no other part.
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_v(collectives_communicator* comm, const void* input,
                                                                  void* output, const size_t* counts,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_v_async(
    collectives_communicator* comm, const void* input, void* output, const size_t* counts, collectives_data_type type,
    collectives_op op, const collectives_options* options, collectives_work** work);

/// Gathers the inputs of all ranks on every rank, in rank order. The input has `count` elements, and the output size *
/// count. In place: input is part `rank` of the output.
COLLECTIVES_EXPORT collectives_error collectives_all_gather(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_gather_async(collectives_communicator* comm, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type,
                                                                  const collectives_options* options,
                                                                  collectives_work** work);

/// Does an all-gather with counts[r] elements from rank r. `counts` is as for collectives_reduce_scatter_v(). With
/// collectives_options::displacements, parts of the output may lie anywhere.
COLLECTIVES_EXPORT collectives_error collectives_all_gather_v(collectives_communicator* comm, const void* input,
                                                              void* output, const size_t* counts,
                                                              collectives_data_type type,
                                                              const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_gather_v_async(collectives_communicator* comm, const void* input,
                                                                    void* output, const size_t* counts,
                                                                    collectives_data_type type,
                                                                    const collectives_options* options,
                                                                    collectives_work** work);

/// Copies the root's input to the output of every rank, the root included. Ranks other than the root may pass NULL as
/// input. In place at the root: input == output.
COLLECTIVES_EXPORT collectives_error collectives_broadcast(collectives_communicator* comm, const void* input,
                                                           void* output, size_t count, collectives_data_type type,
                                                           int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_broadcast_async(collectives_communicator* comm, const void* input,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 int root, const collectives_options* options,
                                                                 collectives_work** work);

/// Reduces `input` over all ranks. Rank `root` receives the result. Other ranks may pass NULL as output. In place at
/// the root: input == output.
COLLECTIVES_EXPORT collectives_error collectives_reduce(collectives_communicator* comm, const void* input, void* output,
                                                        size_t count, collectives_data_type type, collectives_op op,
                                                        int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_async(collectives_communicator* comm, const void* input,
                                                              void* output, size_t count, collectives_data_type type,
                                                              collectives_op op, int root,
                                                              const collectives_options* options,
                                                              collectives_work** work);

/// Gathers the inputs of all ranks at the root, in rank order. The input has `count` elements, and the root's output
/// size * count. Other ranks may pass NULL as output. In place at the root: input is part `root` of the output.
///
/// The v-forms of gathers, scatters and all-to-alls below require buffers in host memory.
COLLECTIVES_EXPORT collectives_error collectives_gather(collectives_communicator* comm, const void* input, void* output,
                                                        size_t count, collectives_data_type type, int root,
                                                        const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_gather_async(collectives_communicator* comm, const void* input,
                                                              void* output, size_t count, collectives_data_type type,
                                                              int root, const collectives_options* options,
                                                              collectives_work** work);

/// Copies part r of the root's input to the output of rank r. The output has `count` elements, and the root's input has
/// size * count. Other ranks may pass NULL as input. In place at the root: output is part `root` of the input.
COLLECTIVES_EXPORT collectives_error collectives_scatter(collectives_communicator* comm, const void* input,
                                                         void* output, size_t count, collectives_data_type type,
                                                         int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_scatter_async(collectives_communicator* comm, const void* input,
                                                               void* output, size_t count, collectives_data_type type,
                                                               int root, const collectives_options* options,
                                                               collectives_work** work);

/// Reduces the inputs of ranks 0 to r in rank order. Rank r receives the result. Both buffers have `count` elements. In
/// place: input == output. An average divides by r + 1.
COLLECTIVES_EXPORT collectives_error collectives_scan(collectives_communicator* comm, const void* input, void* output,
                                                      size_t count, collectives_data_type type, collectives_op op,
                                                      const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_scan_async(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            collectives_op op, const collectives_options* options,
                                                            collectives_work** work);
/// Does a scan of ranks 0 to r - 1, without the rank's own input. Rank 0 may pass NULL as output, which is not written.
/// An average divides by r.
COLLECTIVES_EXPORT collectives_error collectives_exclusive_scan(collectives_communicator* comm, const void* input,
                                                                void* output, size_t count, collectives_data_type type,
                                                                collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_exclusive_scan_async(collectives_communicator* comm, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, collectives_op op,
                                                                      const collectives_options* options,
                                                                      collectives_work** work);
/// Sends `count` elements, part r of the input, to each rank r. Part r of the output comes from rank r. Each buffer has
/// size * count elements. In place: input == output.
COLLECTIVES_EXPORT collectives_error collectives_all_to_all(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_to_all_async(collectives_communicator* comm, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type,
                                                                  const collectives_options* options,
                                                                  collectives_work** work);

/// Does an all-to-all with parts of unequal length: input_counts[r] elements for rank r, and output_counts[r] elements
/// from rank r. Part r begins with element displacements[r] of its buffer. With NULL as displacements, the parts lie
/// one after another. Each list has one number per rank, may differ between ranks, and is not needed after the call.
/// Fails with MISMATCH if a rank sends another number of elements than its peer expects. In place: input ==
/// output, with equal lists.
COLLECTIVES_EXPORT collectives_error collectives_all_to_all_v(
    collectives_communicator* comm, const void* input, const size_t* input_counts, const size_t* input_displacements,
    void* output, const size_t* output_counts, const size_t* output_displacements, collectives_data_type type,
    const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_to_all_v_async(
    collectives_communicator* comm, const void* input, const size_t* input_counts, const size_t* input_displacements,
    void* output, const size_t* output_counts, const size_t* output_displacements, collectives_data_type type,
    const collectives_options* options, collectives_work** work);

/// Gathers `count` elements of each rank at the root. The input of rank r becomes part r of the root's output, which
/// has counts[r] elements. The lists are as for collectives_all_to_all_v(). Other ranks than the root may pass NULL as
/// output and as lists. In place at the root: input is part `rank` of the output.
COLLECTIVES_EXPORT collectives_error collectives_gather_v(collectives_communicator* comm, const void* input,
                                                          size_t count, void* output, const size_t* counts,
                                                          const size_t* displacements, collectives_data_type type,
                                                          int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_gather_v_async(collectives_communicator* comm, const void* input,
                                                                size_t count, void* output, const size_t* counts,
                                                                const size_t* displacements, collectives_data_type type,
                                                                int root, const collectives_options* options,
                                                                collectives_work** work);

/// Copies part r of the root's input, with counts[r] elements, to the output of rank r, which has `count` elements. The
/// lists are as for collectives_all_to_all_v(). Other ranks than the root may pass NULL as input and as lists. In place
/// at the root: output is part `rank` of the input.
COLLECTIVES_EXPORT collectives_error collectives_scatter_v(collectives_communicator* comm, const void* input,
                                                           const size_t* counts, const size_t* displacements,
                                                           void* output, size_t count, collectives_data_type type,
                                                           int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_scatter_v_async(collectives_communicator* comm, const void* input,
                                                                 const size_t* counts, const size_t* displacements,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 int root, const collectives_options* options,
                                                                 collectives_work** work);

/// Blocks until every rank has called it.
COLLECTIVES_EXPORT collectives_error collectives_barrier(collectives_communicator* comm,
                                                         const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_barrier_async(collectives_communicator* comm,
                                                               const collectives_options* options,
                                                               collectives_work** work);

// ---- point-to-point ----
//
// A receive takes messages of one sender with one tag in the order in which they were sent. Both ranks pass the same
// count and type; otherwise both fail with MISMATCH. A rank may send to itself. These calls and collectives do not wait
// for one another. One thread may be in a collective while another thread is in a point-to-point call.
//
// A tag is 0 to 2^30. Of the options, only `name` and `timeout_seconds` matter. A stream, a codec, a compressor or a
// backend is UNSUPPORTED. communicator.hpp has the details.

/// Source of a receive that takes a message of any rank.
#define COLLECTIVES_ANY_SOURCE (-2)

/// Sends `count` elements to rank `to`. May return before `to` has received them.
COLLECTIVES_EXPORT collectives_error collectives_send(collectives_communicator* comm, const void* data, size_t count,
                                                      collectives_data_type type, int to, int tag,
                                                      const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_send_async(collectives_communicator* comm, const void* data,
                                                            size_t count, collectives_data_type type, int to, int tag,
                                                            const collectives_options* options,
                                                            collectives_work** work);
/// Receives the next message with this tag from rank `from`, or from any rank if it is COLLECTIVES_ANY_SOURCE. Sets
/// `*source` to the sender, unless `source` is NULL.
COLLECTIVES_EXPORT collectives_error collectives_recv(collectives_communicator* comm, void* data, size_t count,
                                                      collectives_data_type type, int from, int tag,
                                                      const collectives_options* options, int* source);
COLLECTIVES_EXPORT collectives_error collectives_recv_async(collectives_communicator* comm, void* data, size_t count,
                                                            collectives_data_type type, int from, int tag,
                                                            const collectives_options* options,
                                                            collectives_work** work);
/// Sends `send_count` elements to rank `to` and receives `recv_count` elements from rank `from` at the same time, both
/// with `tag`. The buffers must not overlap. Sets `*source` as collectives_recv() does.
COLLECTIVES_EXPORT collectives_error collectives_sendrecv(collectives_communicator* comm, const void* input,
                                                          size_t send_count, int to, void* output, size_t recv_count,
                                                          int from, collectives_data_type type, int tag,
                                                          const collectives_options* options, int* source);
COLLECTIVES_EXPORT collectives_error collectives_sendrecv_async(collectives_communicator* comm, const void* input,
                                                                size_t send_count, int to, void* output,
                                                                size_t recv_count, int from, collectives_data_type type,
                                                                int tag, const collectives_options* options,
                                                                collectives_work** work);

/// Sets `*source` to the rank whose message a finished receive has taken. -1: the operation is no receive, or it is not
/// finished.
COLLECTIVES_EXPORT collectives_error collectives_work_source(const collectives_work* work, int* source);

/// Blocks until the operation is finished. Fails with the operation's error, also in later calls.
COLLECTIVES_EXPORT collectives_error collectives_work_wait(collectives_work* work);
/// Blocks for at most `seconds`. Sets `*done` to 1 if the operation is finished, and to 0 if it continues.
COLLECTIVES_EXPORT collectives_error collectives_work_wait_for(collectives_work* work, double seconds, int* done);
/// Progresses the operation and sets `*done` in the same way. Does not wait for other ranks. If the host has more ranks
/// than cores, it may sleep for about 50 us after many fruitless calls in a row. Work::test() in communicator.hpp has
/// the details.
COLLECTIVES_EXPORT collectives_error collectives_work_test(collectives_work* work, int* done);
/// Frees the work. Waits for an unfinished operation and drops its error.
COLLECTIVES_EXPORT void collectives_work_free(collectives_work* work);

// ---- persistent calls ----
//
// A persistent call is checked and planned once, and then started any number of times
// (collectives/persistent_call.hpp). Each function that makes one has the arguments of the call of its name. It
// sends nothing, is not collective, and takes no compressor. The buffers, and the codec and the user op in `options`,
// must exist until the handle is freed. Counts and texts are copied. A start is a call of the communicator, in the
// order of the starts.

COLLECTIVES_EXPORT collectives_error collectives_persistent_all_reduce(collectives_communicator* comm,
                                                                       const void* input, void* output, size_t count,
                                                                       collectives_data_type type, collectives_op op,
                                                                       const collectives_options* options,
                                                                       collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_reduce_scatter(
    collectives_communicator* comm, const void* input, void* output, size_t count, collectives_data_type type,
    collectives_op op, const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_reduce_scatter_v(
    collectives_communicator* comm, const void* input, void* output, const size_t* counts, collectives_data_type type,
    collectives_op op, const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_all_gather(collectives_communicator* comm,
                                                                       const void* input, void* output, size_t count,
                                                                       collectives_data_type type,
                                                                       const collectives_options* options,
                                                                       collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_all_gather_v(
    collectives_communicator* comm, const void* input, void* output, const size_t* counts, collectives_data_type type,
    const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_broadcast(collectives_communicator* comm, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, int root,
                                                                      const collectives_options* options,
                                                                      collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_reduce(collectives_communicator* comm, const void* input,
                                                                   void* output, size_t count,
                                                                   collectives_data_type type, collectives_op op,
                                                                   int root, const collectives_options* options,
                                                                   collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_all_to_all(collectives_communicator* comm,
                                                                       const void* input, void* output, size_t count,
                                                                       collectives_data_type type,
                                                                       const collectives_options* options,
                                                                       collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_all_to_all_v(
    collectives_communicator* comm, const void* input, const size_t* input_counts, const size_t* input_displacements,
    void* output, const size_t* output_counts, const size_t* output_displacements, collectives_data_type type,
    const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_gather(collectives_communicator* comm, const void* input,
                                                                   void* output, size_t count,
                                                                   collectives_data_type type, int root,
                                                                   const collectives_options* options,
                                                                   collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_gather_v(collectives_communicator* comm, const void* input,
                                                                     size_t count, void* output, const size_t* counts,
                                                                     const size_t* displacements,
                                                                     collectives_data_type type, int root,
                                                                     const collectives_options* options,
                                                                     collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_scatter(collectives_communicator* comm, const void* input,
                                                                    void* output, size_t count,
                                                                    collectives_data_type type, int root,
                                                                    const collectives_options* options,
                                                                    collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_scatter_v(collectives_communicator* comm, const void* input,
                                                                      const size_t* counts, const size_t* displacements,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, int root,
                                                                      const collectives_options* options,
                                                                      collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_scan(collectives_communicator* comm, const void* input,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 collectives_op op, const collectives_options* options,
                                                                 collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_exclusive_scan(
    collectives_communicator* comm, const void* input, void* output, size_t count, collectives_data_type type,
    collectives_op op, const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_send(collectives_communicator* comm, const void* data,
                                                                 size_t count, collectives_data_type type, int to,
                                                                 int tag, const collectives_options* options,
                                                                 collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_recv(collectives_communicator* comm, void* data,
                                                                 size_t count, collectives_data_type type, int from,
                                                                 int tag, const collectives_options* options,
                                                                 collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_sendrecv(
    collectives_communicator* comm, const void* input, size_t send_count, int to, void* output, size_t recv_count,
    int from, collectives_data_type type, int tag, const collectives_options* options, collectives_persistent** call);
COLLECTIVES_EXPORT collectives_error collectives_persistent_barrier(collectives_communicator* comm,
                                                                    const collectives_options* options,
                                                                    collectives_persistent** call);

/// Starts the operation, and returns without waiting. Fails with INVALID_ARGUMENT if the last start has not been waited
/// for, if a buffer from collectives_memory_allocate() was freed, or if the communicator was freed.
COLLECTIVES_EXPORT collectives_error collectives_persistent_start(collectives_persistent* call);
/// Blocks until the operation is finished. Returns at once if it was not started. Fails with the operation's error.
COLLECTIVES_EXPORT collectives_error collectives_persistent_wait(collectives_persistent* call);
/// Blocks for at most `seconds`. Sets `*done` to 1 if the operation is finished or not started, and to 0 if it
/// continues.
COLLECTIVES_EXPORT collectives_error collectives_persistent_wait_for(collectives_persistent* call, double seconds,
                                                                     int* done);
/// Progresses the operation and sets `*done` in the same way. Sleeps as collectives_work_test() does.
COLLECTIVES_EXPORT collectives_error collectives_persistent_test(collectives_persistent* call, int* done);
/// Sets `*source` to the rank that sent the message which the last start has received, or to -1 if it was no receive.
COLLECTIVES_EXPORT collectives_error collectives_persistent_source(const collectives_persistent* call, int* source);
/// Frees the persistent call. Waits for a started operation and drops its error.
COLLECTIVES_EXPORT void collectives_persistent_free(collectives_persistent* call);

/// Describes in words how a call would be done. Not collective. `count` is the number of elements of the whole vector:
/// the input, or for all_gather the output. Free `*text` by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_explain(const collectives_communicator* comm,
                                                         collectives_collective collective, size_t count,
                                                         collectives_data_type type, collectives_op op,
                                                         const collectives_options* options, char** text);
/// Returns the name of a call's algorithm, such as "hierarchical", in the same way.
COLLECTIVES_EXPORT collectives_error collectives_plan_name(const collectives_communicator* comm,
                                                           collectives_collective collective, size_t count,
                                                           collectives_data_type type, collectives_op op,
                                                           const collectives_options* options, char** name);

// ---- groups ----

/// Makes a group of collectives, which are performed together. Small operations of equal collective, type, op, root and
/// options share one call. Free the group before its communicator.
COLLECTIVES_EXPORT collectives_error collectives_group_create(collectives_communicator* comm,
                                                              collectives_group** group);

// Each of these functions adds an operation with the arguments of the collective of its name. Every rank adds the same
// operations in the same order. Nothing is sent. The buffers and the objects in `options` must stay valid as for an
// asynchronous operation. Counts and lists of tensors are copied. No output may overlap another operation of the group.

COLLECTIVES_EXPORT collectives_error collectives_group_all_reduce(collectives_group* group, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_reduce_scatter(collectives_group* group, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, collectives_op op,
                                                                      const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_reduce_scatter_v(collectives_group* group, const void* input,
                                                                        void* output, const size_t* counts,
                                                                        collectives_data_type type, collectives_op op,
                                                                        const collectives_options* options);
/// Adds a reduce-scatter from a list of tensors, one for each rank. Rank r receives the result of inputs[r], which has
/// counts[r] elements. In place: output == inputs[rank].
COLLECTIVES_EXPORT collectives_error collectives_group_reduce_scatter_list(
    collectives_group* group, const void* const* inputs, void* output, const size_t* counts, collectives_data_type type,
    collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_all_gather(collectives_group* group, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type,
                                                                  const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_all_gather_v(collectives_group* group, const void* input,
                                                                    void* output, const size_t* counts,
                                                                    collectives_data_type type,
                                                                    const collectives_options* options);
/// Adds an all-gather into a list of tensors, one for each rank. The counts[r] elements of rank r go to outputs[r]. In
/// place: input == outputs[rank].
COLLECTIVES_EXPORT collectives_error collectives_group_all_gather_list(collectives_group* group, const void* input,
                                                                       void* const* outputs, const size_t* counts,
                                                                       collectives_data_type type,
                                                                       const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_broadcast(collectives_group* group, const void* input,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_reduce(collectives_group* group, const void* input, void* output,
                                                              size_t count, collectives_data_type type,
                                                              collectives_op op, int root,
                                                              const collectives_options* options);
/// Adds an all-to-all, gather, scatter or scan, with the arguments of the function of that name. Forms of
/// all-to-all, gather and scatter with counts share no calls. They are performed as outside of a group.
COLLECTIVES_EXPORT collectives_error collectives_group_all_to_all(collectives_group* group, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type,
                                                                  const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_all_to_all_v(
    collectives_group* group, const void* input, const size_t* input_counts, const size_t* input_displacements,
    void* output, const size_t* output_counts, const size_t* output_displacements, collectives_data_type type,
    const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_gather(collectives_group* group, const void* input, void* output,
                                                              size_t count, collectives_data_type type, int root,
                                                              const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_gather_v(collectives_group* group, const void* input,
                                                                size_t count, void* output, const size_t* counts,
                                                                const size_t* displacements, collectives_data_type type,
                                                                int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_scatter(collectives_group* group, const void* input,
                                                               void* output, size_t count, collectives_data_type type,
                                                               int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_scatter_v(collectives_group* group, const void* input,
                                                                 const size_t* counts, const size_t* displacements,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_scan(collectives_group* group, const void* input, void* output,
                                                            size_t count, collectives_data_type type, collectives_op op,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_exclusive_scan(collectives_group* group, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, collectives_op op,
                                                                      const collectives_options* options);
/// Adds a send or a receive. Messages start together. Other ranks need not add the same ones, nor use a group.
COLLECTIVES_EXPORT collectives_error collectives_group_send(collectives_group* group, const void* data, size_t count,
                                                            collectives_data_type type, int to, int tag,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_recv(collectives_group* group, void* data, size_t count,
                                                            collectives_data_type type, int from, int tag,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_group_barrier(collectives_group* group,
                                                               const collectives_options* options);
/// Performs all added operations and empties the group, which can be filled again.
COLLECTIVES_EXPORT collectives_error collectives_group_run(collectives_group* group);
/// Starts all added operations and empties the group. The group may be filled again, or freed, before they end.
COLLECTIVES_EXPORT collectives_error collectives_group_run_async(collectives_group* group, collectives_work** work);
COLLECTIVES_EXPORT void collectives_group_free(collectives_group* group);

// ---- memory ----

/// Kind of the pages that the system has provided: huge pages reserved by vm.nr_hugepages, transparent huge pages,
/// small pages, or ordinary memory, which other ranks cannot access.
typedef enum collectives_pages COLLECTIVES_ENUM {
  COLLECTIVES_HUGE_PAGES = 0,
  COLLECTIVES_TRANSPARENT_HUGE_PAGES = 1,
  COLLECTIVES_SMALL_PAGES = 2,
  COLLECTIVES_PRIVATE_PAGES = 3
} collectives_pages;

/// Allocates `bytes` zero bytes that the other ranks of this host can access without a copy. The address is a multiple
/// of `alignment`, a power of two (0: 64).
///
/// Not collective; ranks may mix such buffers with ordinary ones. A new segment costs 0.3 to 1 ms per MiB. Fails with
/// SYSTEM and names the refused request and the setting to change; `comm` then stays usable.
COLLECTIVES_EXPORT collectives_error collectives_memory_allocate(const collectives_communicator* comm, size_t bytes,
                                                                 size_t alignment, collectives_memory** memory);
/// Returns the address, or NULL for 0 bytes. Valid until the memory is freed.
COLLECTIVES_EXPORT void* collectives_memory_data(const collectives_memory* memory);
COLLECTIVES_EXPORT size_t collectives_memory_bytes(const collectives_memory* memory);
COLLECTIVES_EXPORT collectives_error collectives_memory_pages(const collectives_memory* memory,
                                                              collectives_pages* pages);
/// Returns a description: "12 B: transparent_huge_pages (2 MiB of 2 MiB huge)". Free `*text` by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_memory_describe(const collectives_memory* memory, char** text);
/// Frees the memory. Requires that no operation of this rank uses it. Its communicator may be freed already.
COLLECTIVES_EXPORT void collectives_memory_free(collectives_memory* memory);

/// Access of calls to GPU memory: registered with NCCL, mapped by the other ranks of this host, or copied.
typedef enum collectives_device_access COLLECTIVES_ENUM {
  COLLECTIVES_DEVICE_REGISTERED = 0,
  COLLECTIVES_DEVICE_MAPPED = 1,
  COLLECTIVES_DEVICE_COPIED = 2
} collectives_device_access;

/// Allocates `bytes` uninitialized bytes on the GPU of `comm`, in the kind of memory that suits its calls best. If NCCL
/// connects the ranks, the memory is NCCL's and registered with it.
///
/// Not collective. Waits for the operations of `comm` in flight. Fails with UNSUPPORTED if `comm` takes no device
/// buffers. Fails with SYSTEM and names the refused request. `comm` then stays usable.
COLLECTIVES_EXPORT collectives_error collectives_device_memory_allocate(collectives_communicator* comm, size_t bytes,
                                                                        collectives_device_memory** memory);
/// Registers the program's device memory with `comm`: a whole allocation or a range of one. The registration lasts
/// until collectives_device_memory_free(); the memory stays the program's. A range inside a registered range shares its
/// registration.
///
/// Fails like the function above. Fails with INVALID_ARGUMENT if the memory is not on that GPU, or is not part of
/// one allocation. Also fails so if the memory overlaps a registered range without lying inside it.
COLLECTIVES_EXPORT collectives_error collectives_device_memory_register(collectives_communicator* comm, void* data,
                                                                        size_t bytes,
                                                                        collectives_device_memory** memory);
/// Returns the address, or NULL for 0 bytes.
COLLECTIVES_EXPORT void* collectives_device_memory_data(const collectives_device_memory* memory);
COLLECTIVES_EXPORT size_t collectives_device_memory_bytes(const collectives_device_memory* memory);
COLLECTIVES_EXPORT collectives_error collectives_device_memory_access(const collectives_device_memory* memory,
                                                                      collectives_device_access* access);
/// Returns a description: "4 MiB on GPU 1: registered (NCCL 2.28.9 (libnccl.so.2))". Free `*text` by
/// collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_device_memory_describe(const collectives_device_memory* memory,
                                                                        char** text);
/// Frees the memory, or ends its registration. Waits for its communicator's operations in flight, and as cudaFree does.
/// While the communicator exists, this is one of its calls: one at a time.
COLLECTIVES_EXPORT void collectives_device_memory_free(collectives_device_memory* memory);

// ---- ops and codecs of the program ----

/// Folds `count` elements of `next` into `accumulated`, element by element. Runs on the thread of any call, or on the
/// progress thread. Must not call the library.
typedef void (*collectives_combine)(void* context, const void* next, void* accumulated, size_t count,
                                    collectives_data_type type);
/// Makes an op for collectives_options::user_op. `name` is equal on every rank. The op must be associative. If it is
/// not `commutative`, it is applied in rank order: ((x0 . x1) . x2) and so on. `combine` receives `context` unchanged.
COLLECTIVES_EXPORT collectives_error collectives_user_op_create(const char* name, collectives_combine combine,
                                                                void* context, int commutative,
                                                                collectives_user_op** op);
/// Sets the bytes of one element of the op: a multiple of those of the type, up to 1024. 0: one element of the type.
/// The library cuts a vector only between elements of the op, and each count of a call is a number of whole ones.
/// Requires that no operation uses the op.
COLLECTIVES_EXPORT collectives_error collectives_user_op_set_element_bytes(collectives_user_op* op,
                                                                           size_t element_bytes);
/// Frees the op. Requires that no operation uses it.
COLLECTIVES_EXPORT void collectives_user_op_free(collectives_user_op* op);

/// Functions of a codec, which encode f32 values as bytes and decode them. The library assumes these properties and
/// does not check them:
///
/// Law. encode(decode(bytes)) writes the same bytes, for all bytes that encode() has written.
///
/// Blocks. Elements are coded in blocks of `block` elements. The last block may be shorter. Each block is independent.
///
/// Rate. encoded_bytes() depends on the count alone. n blocks take n times the bytes of one block, and 0 elements take
/// 0 bytes.
///
/// Agreement. Every machine encodes the same values as the same bytes. All ranks pass codecs with equal names.
///
/// Values are aligned; bytes may have any alignment. decode() reads bytes of another process, so it must decode every
/// byte sequence to some values.
typedef struct collectives_codec_functions {
  size_t size;       ///< sizeof(collectives_codec_functions)
  const char* name;  ///< Name of the format. Another format has another name.
  size_t block;      ///< Number of elements in a block. 0: 1.
  void* context;     ///< Passed to the functions unchanged.
  size_t (*encoded_bytes)(void* context, size_t count);
  void (*encode)(void* context, const float* values, size_t count, void* bytes);
  void (*decode)(void* context, const void* bytes, float* values, size_t count);
} collectives_codec_functions;
COLLECTIVES_EXPORT collectives_error collectives_codec_create(const collectives_codec_functions* functions,
                                                              collectives_codec** codec);
/// Frees the codec. Requires that no operation uses it.
COLLECTIVES_EXPORT void collectives_codec_free(collectives_codec* codec);

// ---- top-k ----

/// Reaction to a NaN or infinity in a rank's contribution. It is sent (PROPAGATE). The result is zero (SKIP). Or the
/// call fails with ABORTED on every rank, and names the tensor, the index, and the rank or the ranks of the host
/// (ABORT).
///
/// After SKIP and ABORT, residuals keep the finite gradients of the other ranks. Values that are too large to arrive as
/// finite values are dropped.
typedef enum collectives_non_finite COLLECTIVES_ENUM {
  COLLECTIVES_NON_FINITE_PROPAGATE = 0,
  COLLECTIVES_NON_FINITE_SKIP = 1,
  COLLECTIVES_NON_FINITE_ABORT = 2
} collectives_non_finite;

/// Form in which selections are exchanged and added. AUTOMATIC: the faster one by estimate. GATHERED: every rank sends
/// its selection to all ranks. SPLIT: every rank owns a range, adds the selected elements of the range and sends the
/// sum to all ranks.
typedef enum collectives_sparse_form COLLECTIVES_ENUM {
  COLLECTIVES_SPARSE_AUTOMATIC = 0,
  COLLECTIVES_SPARSE_GATHERED = 1,
  COLLECTIVES_SPARSE_SPLIT = 2
} collectives_sparse_form;

/// Options of a compressor. All ranks pass equal options.
typedef struct collectives_top_k_options {
  size_t size;     ///< sizeof(collectives_top_k_options)
  double density;  ///< k = density * count, rounded up. In (0, 1]. 0: 0.01.
  size_t k;        ///< Exact k; a tensor with fewer elements is sent whole. 0: by density.
  /// Momentum correction, in [0, 1): each rank selects from velocity = momentum * velocity + gradient.
  double momentum;
  double clip;             ///< If not 0: scales each gradient to a norm of at most clip / sqrt(ranks).
  size_t warm_up_calls;    ///< Calls of each tensor in which the density falls from warm_up_density. Not with k.
  double warm_up_density;  ///< Density of a tensor's first call in the warm-up, in (0, 1]. 0: 0.25.
  const char* values;      ///< Type of values on the wire: "bf16". NULL, "f32": f32.
  collectives_switch error_feedback;  ///< Keep unsent values in the residual. Default: on.
  /// The velocity of sent elements restarts from 0, unless everything is sent. Default: on.
  collectives_switch masking;
  collectives_non_finite non_finite;  ///< Default: propagate.
  collectives_sparse_form form;       ///< Default: automatic.
} collectives_top_k_options;

/// Makes a compressor for collectives_options::compressor. Every rank sends the k largest elements of a tensor and
/// keeps the rest for the next call of that name. `options` may be NULL. A compressor serves any number of
/// communicators, but only one thread at a time. Calls of one name must not overlap.
///
/// Failed calls. A failed call sends nothing, is not counted, and leaves the residual valid. The part of the gradient
/// that had already been added to the residual stays there, so do not pass that gradient again. If the call had
/// completed on other ranks, the residuals of the ranks no longer match: restore them with collectives_top_k_load().
COLLECTIVES_EXPORT collectives_error collectives_top_k_create(const collectives_top_k_options* options,
                                                              collectives_top_k** top_k);

/// Report of this rank's last call for a tensor.
typedef struct collectives_top_k_report {
  size_t size;         ///< sizeof(collectives_top_k_report), set by the caller
  uint64_t calls;      ///< Number of calls so far.
  size_t sparse;       ///< 1, or 0 if everything was sent.
  const char* reason;  ///< Reason for `sparse`. Valid until the next report of this compressor, or its end.
  size_t count;        ///< Number of elements of the tensor.
  size_t chosen;  ///< Number of elements that this rank selected, in its slice if the ranks of a host share the work.
  size_t union_size;  ///< Number of distinct indices that any rank sent, within this rank's slice.
  /// 2 (p - 1) / p of the tensor's bytes: the least that a rank sends in an all-reduce of p ranks.
  uint64_t raw_bytes;
  uint64_t sent_bytes;    ///< Bytes of the selections that this rank sent. raw_bytes if everything was sent.
  double coding_seconds;  ///< Seconds of selecting, encoding and adding.
  double residual_norm;   ///< Norm of the residual after the call.
  double relative_error;  ///< residual_norm divided by the norm of the residual and the sent values together.
} collectives_top_k_report;
/// Fills `report` for the tensor `name`. Takes a pass over the residual. Fails with INVALID_ARGUMENT if no call has
/// used the name, and with SYSTEM if the residual is on a GPU that has failed.
COLLECTIVES_EXPORT collectives_error collectives_top_k_get_report(collectives_top_k* top_k, const char* name,
                                                                  collectives_top_k_report* report);

/// Returns the state of this rank for a checkpoint: `*bytes` bytes at `*state`. Call it between calls. Free `*state` by
/// collectives_free(). Fails with SYSTEM if a residual is on a GPU that has failed.
COLLECTIVES_EXPORT collectives_error collectives_top_k_save(const collectives_top_k* top_k, void** state,
                                                            size_t* bytes);
/// Replaces the state by the states that the `saved` ranks of a run saved. The state of rank r is states[r], of
/// bytes[r] bytes.
///
/// With as many ranks in as many hosts as then, the run continues bit for bit. With other numbers, rank r takes the
/// residuals of ranks r, r + ranks, r + 2 ranks and so on, and velocities restart from 0. Fails with INVALID_ARGUMENT
/// if a state is not from collectives_top_k_save().
COLLECTIVES_EXPORT collectives_error collectives_top_k_load(collectives_top_k* top_k, const void* const* states,
                                                            const size_t* bytes, size_t saved, int rank, int ranks);
/// Frees the compressor. Requires that no operation uses it.
COLLECTIVES_EXPORT void collectives_top_k_free(collectives_top_k* top_k);

#ifdef __cplusplus
}  // extern "C"
#endif
#undef COLLECTIVES_ENUM
