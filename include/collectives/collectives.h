// The library for C99, and for every language that can call C.
//
//   collectives_communicator* comm;
//   if (collectives_communicator_from_environment(NULL, &comm) != COLLECTIVES_SUCCESS) return fail();
//   if (collectives_all_reduce(comm, gradient, mean, 1000, COLLECTIVES_F32, COLLECTIVES_AVERAGE, NULL)) return fail();
//   collectives_communicator_free(comm);
//   ...
//   int fail(void) { return fprintf(stderr, "%s\n", collectives_last_error()), 1; }
//
// What holds for every function:
//   Errors    A function that can fail returns a collectives_error; what it makes is NULL then. The text, and who and
//             what failed, is with collectives_last_error(). Properties, which return their value, give -1, 0 or NULL
//             for a null handle. A pointer that may not be null is COLLECTIVES_ERROR_INVALID_ARGUMENT where it is.
//             Too little memory is COLLECTIVES_ERROR_SYSTEM. No C++ exception leaves the library.
//   Handles   Made by a function whose last argument is where to put them, ended by their ..._free(), which takes NULL,
//             too. What a handle was made from may be freed before it, unless the comment says otherwise.
//   Structs   begin with `size`, their own, by which the library knows how much of one the program was compiled with:
//                 collectives_options options = {.size = sizeof options, .wire = "bf16"};
//             Every other field may stay 0, or NULL, and then means its default. So fields can be added at the end, and
//             programs and libraries of different age still understand each other.
//   Text      is UTF-8 and ends with '\0'. What is passed in is copied.
//   Counts    are elements, sizes bytes, times seconds.
//   Threads   One call at a time for one communicator and what was made from it; collectives_abort() from any thread. A
//             thread that is in a call may not be cancelled (pthread_cancel). A child of fork() is refused.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/export.hpp"  // nothing but the macro COLLECTIVES_EXPORT

#ifdef __cplusplus
#define COLLECTIVES_ENUM : int  // so that a value that no enumerator names is an error, and not undefined
extern "C" {
#else
#define COLLECTIVES_ENUM
#endif

/// How a call ended, and what can be done.
///
/// | error            | the communicator afterwards | what to do                                             |
/// | ---------------- | --------------------------- | ------------------------------------------------------ |
/// | INVALID_ARGUMENT | good, nothing was sent      | correct the call                                       |
/// | UNSUPPORTED      | good, nothing was sent      | choose another backend, type or build                  |
/// | MISMATCH         | broken                      | make the ranks issue the same calls                    |
/// | TIMEOUT          | broken                      | find the missing rank; the text names it               |
/// | PEER_LOST        | broken                      | restart the lost rank, build a new communicator        |
/// | ABORTED          | broken                      | read the reason: some rank called collectives_abort()  |
/// | BOOTSTRAP        | never came to be            | mend the address, the port or the variable named       |
/// | SYSTEM           | broken, if it was under way | the operating system refused something; the text says  |
///
/// Of a broken communicator only collectives_abort(), collectives_explain(), its properties, its memory and its end
/// remain: every call that would need the others fails with the same error again. Buffers of the operations that
/// failed are the program's own again (collectives/error.hpp names the one exception); outputs hold anything.
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
  COLLECTIVES_BARRIER = 5
} collectives_collective;

/// Of elements: IEEE floats, the upper half of an f32, and integers in two's complement, as the processor has them.
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
  COLLECTIVES_U64 = 9
} collectives_data_type;

/// How contributions are combined.
typedef enum collectives_op COLLECTIVES_ENUM {
  COLLECTIVES_SUM = 0,      ///< integers wrap; 16-bit floats are added in f32 in rank order and rounded once
  COLLECTIVES_AVERAGE = 1,  ///< floats: the sum over the number of ranks; integers: the mean, truncated toward zero
  COLLECTIVES_PRODUCT = 2,
  COLLECTIVES_MIN = 3,  ///< NaN if any is; -0 is less than +0
  COLLECTIVES_MAX = 4,
  COLLECTIVES_PRE_SCALED_SUM = 5,  ///< each times collectives_options::factor, then added; floats only
  COLLECTIVES_USER_OP = 6          ///< by collectives_options::user_op
} collectives_op;

typedef enum collectives_switch COLLECTIVES_ENUM {
  COLLECTIVES_DEFAULT = 0,
  COLLECTIVES_ON = 1,
  COLLECTIVES_OFF = 2
} collectives_switch;

typedef struct collectives_communicator collectives_communicator;    ///< a fixed set of ranks
typedef struct collectives_threads collectives_threads;              ///< where ranks that are threads meet
typedef struct collectives_work collectives_work;                    ///< an operation under way
typedef struct collectives_group collectives_group;                  ///< many small all-reduces
typedef struct collectives_memory collectives_memory;                ///< memory that ranks of a host share
typedef struct collectives_device_memory collectives_device_memory;  ///< of a GPU, known to a communicator
typedef struct collectives_user_op collectives_user_op;              ///< a reduction of the program's own
typedef struct collectives_codec collectives_codec;                  ///< a format of the program's own for the wire
typedef struct collectives_top_k collectives_top_k;                  ///< a compressor that sends the largest elements

// ---- errors, and what there is before any communicator ----

/// Of the library that is loaded: "0.1.0".
COLLECTIVES_EXPORT const char* collectives_version(void);
/// "timeout"; "success" for 0; "unknown error" for what none of them is.
COLLECTIVES_EXPORT const char* collectives_error_name(collectives_error error);
/// Bytes of one element; 0 for what is no type.
COLLECTIVES_EXPORT size_t collectives_size_of(collectives_data_type type);

/// Of the last function that failed in this thread, one line: "all_reduce #17: rank 3 passed 4096 x bf16, ranks 0-2
/// passed 4095 x bf16". Empty when none has. Valid until the next that fails in this thread; success changes nothing.
COLLECTIVES_EXPORT const char* collectives_last_error(void);
COLLECTIVES_EXPORT collectives_error collectives_last_error_code(void);
/// Who reports it, and whose doing it was; -1 where that is nobody, or unknown.
COLLECTIVES_EXPORT int collectives_last_error_rank(void);
COLLECTIVES_EXPORT int collectives_last_error_peer(void);
/// "all_reduce #17", or empty. Valid as the text is.
COLLECTIVES_EXPORT const char* collectives_last_error_operation(void);

/// Ends text and bytes that a function has handed to the program: collectives_explain(), collectives_top_k_save(), ...
COLLECTIVES_EXPORT void collectives_free(void* text_or_bytes);

// ---- communicators ----

/// Of a communicator. Environment variables override the defaults, not what a program sets; COLLECTIVES_TUNING is one.
typedef struct collectives_communicator_options {
  size_t size;             ///< sizeof(collectives_communicator_options)
  const char* backend;     ///< "ring", "hierarchical", "reduce_to_one", "auto"; NULL: COLLECTIVES_BACKEND, else "auto"
  double timeout_seconds;  ///< of each call and of the start; 0: COLLECTIVES_TIMEOUT, else 600; INFINITY: none
  double stall_report_seconds;         ///< a call this late is reported on stderr; 0: 30; INFINITY: never
  const char* transport;               ///< see COLLECTIVES_TRANSPORT
  const char* wire;                    ///< "tcp", "ucx", "mpi" between hosts; NULL: COLLECTIVES_WIRE, else the best
  collectives_switch deterministic;    ///< default: COLLECTIVES_DETERMINISTIC, else off
  collectives_switch progress_thread;  ///< default: only with spare cores
  /// On: buffers may be those of the GPU that is current to the calling thread; UNSUPPORTED where there is none.
  /// Default: if this process uses CUDA by then.
  collectives_switch device_buffers;
  collectives_switch reserved;  ///< the place of a later switch: COLLECTIVES_DEFAULT
} collectives_communicator_options;

/// Meets the ranks that mpirun, srun, torchrun, TF_CONFIG or collectives_run started; alone when nothing did.
/// `options` may be NULL. Waits for all ranks. Fails with BOOTSTRAP, naming the variable, port or host at fault, and
/// with TIMEOUT, naming the ranks that did not come.
/// Meeting through an MPI_Comm is in collectives_mpi.h, which needs MPI.
COLLECTIVES_EXPORT collectives_error collectives_communicator_from_environment(
    const collectives_communicator_options* options, collectives_communicator** comm);

/// A meeting of `ranks` ranks that are threads of this process. One thread makes it and hands it to the others.
COLLECTIVES_EXPORT collectives_error collectives_threads_create(int ranks, collectives_threads** threads);
/// Meets the other threads as rank `rank`: each calls it once for a communicator, every rank by another thread; any
/// number of times one after the other. `options` may be NULL.
COLLECTIVES_EXPORT collectives_error
collectives_communicator_from_threads(collectives_threads* threads, int rank,
                                      const collectives_communicator_options* options, collectives_communicator** comm);
/// When no thread is meeting any more. The communicators stay.
COLLECTIVES_EXPORT void collectives_threads_free(collectives_threads* threads);

/// A new communicator for each distinct `color` (0 and up), ranks ordered by `key`, then by rank in `comm`. Collective
/// over `comm`; with a negative color this rank takes part and gets NULL. What `options` leaves out is that of `comm`.
COLLECTIVES_EXPORT collectives_error collectives_split(collectives_communicator* comm, int color, int key,
                                                       const collectives_communicator_options* options,
                                                       collectives_communicator** part);

/// Does not wait for the other ranks; unfinished operations fail there with PEER_LOST. Works of it may be freed later,
/// its groups may not.
COLLECTIVES_EXPORT void collectives_communicator_free(collectives_communicator* comm);

/// 0 to size - 1.
COLLECTIVES_EXPORT int collectives_rank(const collectives_communicator* comm);
COLLECTIVES_EXPORT int collectives_size(const collectives_communicator* comm);
/// "shared_memory", "local" (ranks are threads), "tcp", or "shared_memory+tcp". Valid as long as `comm` is.
COLLECTIVES_EXPORT const char* collectives_transport(const collectives_communicator* comm);
/// That this rank has handed to transports and to the memory its host shares, since it met the others.
COLLECTIVES_EXPORT uint64_t collectives_bytes_sent(const collectives_communicator* comm);
/// Of these, payload of messages to other hosts.
COLLECTIVES_EXPORT uint64_t collectives_bytes_sent_to_other_hosts(const collectives_communicator* comm);

/// What a wire in fewer bytes has saved, and cost.
typedef struct collectives_coding_report {
  size_t size;          ///< sizeof(collectives_coding_report), set by the caller
  uint64_t raw_bytes;   ///< of the values in the coded messages that this rank sent
  uint64_t sent_bytes;  ///< of the messages
  double seconds;       ///< encoding what went out, decoding and adding what came in
} collectives_coding_report;
/// Since it met the others.
COLLECTIVES_EXPORT collectives_error collectives_coding(const collectives_communicator* comm,
                                                        collectives_coding_report* report);

/// Fails every operation of this communicator, under way and to come, on every rank, with ABORTED and `reason`: within
/// a second on ranks that are in a call, on the others at their next call. From any thread.
COLLECTIVES_EXPORT collectives_error collectives_abort(collectives_communicator* comm, const char* reason);
/// Moves unfinished operations on, without waiting. What they fail with is told by their works.
COLLECTIVES_EXPORT collectives_error collectives_progress(collectives_communicator* comm);

// ---- collectives ----
//
// A call is made by every rank, with equal counts, type, op, root and options; ranks that disagree get MISMATCH, which
// says who passed what. Any count from 0, when buffers may be NULL. In place as the comment says; any other overlap of
// input and output is INVALID_ARGUMENT. Every rank ends with the same bits. Operations of one communicator run in the
// order in which they are issued. `options` may be NULL. Blocking calls allocate nothing from the second alike on.
//
// ..._async() return at once. Buffers, and the codec, compressor and user op that options name, stay until
// collectives_work_wait() or collectives_work_test() has told of the end, or collectives_work_free() has returned.

/// Of one call. What is left out is the communicator's.
typedef struct collectives_options {
  size_t size;             ///< sizeof(collectives_options)
  const char* backend;     ///< "ring", "hierarchical", "reduce_to_one", "auto"
  const char* name;        ///< of the tensor: shown in errors; what a compressor knows it by
  double timeout_seconds;  ///< 0: the communicator's; INFINITY: none
  /// What f32 values travel as between ranks that share no memory: "bf16", "f16", "int8"; NULL, "f32": as they are.
  /// Rounded twice at most, whatever the number of ranks. Where values as they are would be as fast, they are sent so,
  /// unless `deterministic`; collectives_explain() says why.
  const char* wire;
  const collectives_codec* codec;  ///< in place of `wire`
  /// Of all_reduce of f32, by sum or average: only the largest elements travel. Needs `name`. `wire` or `codec` is what
  /// values travel as where everything is sent.
  collectives_top_k* compressor;
  const collectives_user_op* user_op;  ///< of COLLECTIVES_USER_OP, and of no other
  double factor;                       ///< of COLLECTIVES_PRE_SCALED_SUM, which needs options; 0 is one, too
  collectives_switch deterministic;    ///< on: the same bits whatever the backend, segmenting or size
  collectives_switch force;            ///< on: compressed even where that is slower
  /// Of device memory: where a cudaStream_t stands, which may be CUDA's default one. What the stream holds at the call
  /// comes before the operation. A blocking call may return before the GPU has done it, but what is put into the stream
  /// from then on sees the result; an asynchronous one is finished when the result is there. NULL: buffers are ready
  /// when the call is made, and the result is there when it ends.
  void* const* stream;
} collectives_options;

/// Every rank receives the reduction of all inputs, element by element. Both have `count` elements. In place: input ==
/// output.
COLLECTIVES_EXPORT collectives_error collectives_all_reduce(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_reduce_async(collectives_communicator* comm, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options,
                                                                  collectives_work** work);

/// Rank r receives part r of the reduction. `count`: of the output; the input has size * count. In place: output is
/// part `rank` of the input.
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter(collectives_communicator* comm, const void* input,
                                                                void* output, size_t count, collectives_data_type type,
                                                                collectives_op op, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_async(collectives_communicator* comm, const void* input,
                                                                      void* output, size_t count,
                                                                      collectives_data_type type, collectives_op op,
                                                                      const collectives_options* options,
                                                                      collectives_work** work);

/// The same with parts of unequal length: counts[r] elements for rank r; `counts` has one for each rank, the same on
/// all of them, and is not needed after the call. The input has their sum, the output counts[rank].
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_v(collectives_communicator* comm, const void* input,
                                                                  void* output, const size_t* counts,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_scatter_v_async(
    collectives_communicator* comm, const void* input, void* output, const size_t* counts, collectives_data_type type,
    collectives_op op, const collectives_options* options, collectives_work** work);

/// Every rank receives all inputs, in rank order. `count`: of the input; the output has size * count. In place: input
/// is part `rank` of the output.
COLLECTIVES_EXPORT collectives_error collectives_all_gather(collectives_communicator* comm, const void* input,
                                                            void* output, size_t count, collectives_data_type type,
                                                            const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_gather_async(collectives_communicator* comm, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type,
                                                                  const collectives_options* options,
                                                                  collectives_work** work);

/// The same with counts[r] elements from rank r, as for collectives_reduce_scatter_v().
COLLECTIVES_EXPORT collectives_error collectives_all_gather_v(collectives_communicator* comm, const void* input,
                                                              void* output, const size_t* counts,
                                                              collectives_data_type type,
                                                              const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_all_gather_v_async(collectives_communicator* comm, const void* input,
                                                                    void* output, const size_t* counts,
                                                                    collectives_data_type type,
                                                                    const collectives_options* options,
                                                                    collectives_work** work);

/// Every rank's output, the root's too, becomes the root's input; the others may pass NULL for theirs. In place: input
/// == output at the root.
COLLECTIVES_EXPORT collectives_error collectives_broadcast(collectives_communicator* comm, const void* input,
                                                           void* output, size_t count, collectives_data_type type,
                                                           int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_broadcast_async(collectives_communicator* comm, const void* input,
                                                                 void* output, size_t count, collectives_data_type type,
                                                                 int root, const collectives_options* options,
                                                                 collectives_work** work);

/// Rank `root` receives the reduction of all inputs; the others may pass NULL for their output. In place at the root:
/// input == output.
COLLECTIVES_EXPORT collectives_error collectives_reduce(collectives_communicator* comm, const void* input, void* output,
                                                        size_t count, collectives_data_type type, collectives_op op,
                                                        int root, const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_reduce_async(collectives_communicator* comm, const void* input,
                                                              void* output, size_t count, collectives_data_type type,
                                                              collectives_op op, int root,
                                                              const collectives_options* options,
                                                              collectives_work** work);

/// Returns when every rank has called it.
COLLECTIVES_EXPORT collectives_error collectives_barrier(collectives_communicator* comm,
                                                         const collectives_options* options);
COLLECTIVES_EXPORT collectives_error collectives_barrier_async(collectives_communicator* comm,
                                                               const collectives_options* options,
                                                               collectives_work** work);

/// Waits for the end of an operation; fails with what it failed with, whenever it is asked.
COLLECTIVES_EXPORT collectives_error collectives_work_wait(collectives_work* work);
/// Waits at most so long; `*done`: 1 when it is finished, 0 when it goes on.
COLLECTIVES_EXPORT collectives_error collectives_work_wait_for(collectives_work* work, double seconds, int* done);
/// Moves the operation on; `*done` as above. Does not wait for other ranks, but may sleep for some 50 us after many
/// fruitless calls in a row if the host has more ranks than cores. Work::test() in communicator.hpp has the details.
COLLECTIVES_EXPORT collectives_error collectives_work_test(collectives_work* work, int* done);
/// Waits for the end if it is unfinished, and drops its error.
COLLECTIVES_EXPORT void collectives_work_free(collectives_work* work);

/// What a call would do, in words, and the name of its algorithm ("hierarchical"). Not collective. `count`: of the
/// whole vector, that is the input, or for all_gather the output. `*text`: ended by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_explain(const collectives_communicator* comm,
                                                         collectives_collective collective, size_t count,
                                                         collectives_data_type type, collectives_op op,
                                                         const collectives_options* options, char** text);
COLLECTIVES_EXPORT collectives_error collectives_plan_name(const collectives_communicator* comm,
                                                           collectives_collective collective, size_t count,
                                                           collectives_data_type type, collectives_op op,
                                                           const collectives_options* options, char** name);

// ---- groups ----

/// Fuses small all-reduces of equal type, op and options into few large ones. Freed before its communicator.
COLLECTIVES_EXPORT collectives_error collectives_group_create(collectives_communicator* comm,
                                                              collectives_group** group);
/// Adds a tensor, as collectives_all_reduce() takes it. Every rank adds the same ones in the same order. Nothing is
/// sent; buffers, and what `options` names, stay as for an operation under way.
COLLECTIVES_EXPORT collectives_error collectives_group_all_reduce(collectives_group* group, const void* input,
                                                                  void* output, size_t count,
                                                                  collectives_data_type type, collectives_op op,
                                                                  const collectives_options* options);
/// Performs everything added, and empties the group, which can be filled again.
COLLECTIVES_EXPORT collectives_error collectives_group_run(collectives_group* group);
/// The same without waiting. The group may be filled again, or freed, before the end.
COLLECTIVES_EXPORT collectives_error collectives_group_run_async(collectives_group* group, collectives_work** work);
COLLECTIVES_EXPORT void collectives_group_free(collectives_group* group);

// ---- memory ----

/// What the system gave: huge pages by vm.nr_hugepages, by the kernel's own choice, none; or ordinary memory, which
/// other ranks cannot reach.
typedef enum collectives_pages COLLECTIVES_ENUM {
  COLLECTIVES_HUGE_PAGES = 0,
  COLLECTIVES_TRANSPARENT_HUGE_PAGES = 1,
  COLLECTIVES_SMALL_PAGES = 2,
  COLLECTIVES_PRIVATE_PAGES = 3
} collectives_pages;

/// `bytes` zero bytes that the other ranks of this host reach without a copy, at a multiple of `alignment`, a power of
/// two (0: 64). Not collective; ranks may mix such buffers with ordinary ones. Costs 0.3 to 1 ms per MiB. Fails with
/// SYSTEM, naming what was refused and the setting to change.
COLLECTIVES_EXPORT collectives_error collectives_memory_allocate(const collectives_communicator* comm, size_t bytes,
                                                                 size_t alignment, collectives_memory** memory);
/// Where it begins; NULL for 0 bytes. Valid until it is freed.
COLLECTIVES_EXPORT void* collectives_memory_data(const collectives_memory* memory);
COLLECTIVES_EXPORT size_t collectives_memory_bytes(const collectives_memory* memory);
COLLECTIVES_EXPORT collectives_error collectives_memory_pages(const collectives_memory* memory,
                                                              collectives_pages* pages);
/// In words: "12 B: transparent_huge_pages (2 MiB of 2 MiB huge)". `*text`: ended by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_memory_describe(const collectives_memory* memory, char** text);
/// Not while an operation of this rank uses it. Its communicator may be gone.
COLLECTIVES_EXPORT void collectives_memory_free(collectives_memory* memory);

/// How calls reach memory of a GPU: registered with NCCL, mapped by the other ranks of this host, or by copies.
typedef enum collectives_device_access COLLECTIVES_ENUM {
  COLLECTIVES_DEVICE_REGISTERED = 0,
  COLLECTIVES_DEVICE_MAPPED = 1,
  COLLECTIVES_DEVICE_COPIED = 2
} collectives_device_access;

/// `bytes` on the GPU of `comm`, not set to anything, in memory that its calls use best: of NCCL and registered with it
/// where that connects the ranks. Not collective; waits for the operations of `comm` that are under way. Fails with
/// UNSUPPORTED where it takes no device buffers, with SYSTEM naming what was refused; then `comm` is still good.
COLLECTIVES_EXPORT collectives_error collectives_device_memory_allocate(collectives_communicator* comm, size_t bytes,
                                                                        collectives_device_memory** memory);
/// The same of device memory of the program's, all of an allocation or a piece of it, which stays the program's and is
/// known to `comm` until collectives_device_memory_free(). What lies in a registered range shares its registration.
/// INVALID_ARGUMENT for memory that is not that GPU's, and for a range that overlaps a registered one otherwise.
COLLECTIVES_EXPORT collectives_error collectives_device_memory_register(collectives_communicator* comm, void* data,
                                                                        size_t bytes,
                                                                        collectives_device_memory** memory);
/// Where it begins; NULL for 0 bytes.
COLLECTIVES_EXPORT void* collectives_device_memory_data(const collectives_device_memory* memory);
COLLECTIVES_EXPORT size_t collectives_device_memory_bytes(const collectives_device_memory* memory);
COLLECTIVES_EXPORT collectives_error collectives_device_memory_access(const collectives_device_memory* memory,
                                                                      collectives_device_access* access);
/// In words: "4 MiB on GPU 1: registered (NCCL 2.28.9 (libnccl.so.2))". `*text`: ended by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_device_memory_describe(const collectives_device_memory* memory,
                                                                        char** text);
/// Waits for the operations of its communicator that are under way, and as cudaFree does. A call of that communicator,
/// if it still exists: one at a time.
COLLECTIVES_EXPORT void collectives_device_memory_free(collectives_device_memory* memory);

// ---- reductions and formats of the program's own ----

/// Folds `count` elements of `next` into `accumulated`, each for itself. May not call the library. Runs on the thread
/// of any call, or on the progress thread.
typedef void (*collectives_combine)(void* context, const void* next, void* accumulated, size_t count,
                                    collectives_data_type type);
/// `name`: the same on every rank. An op must be associative; one that is not `commutative` is applied in rank order,
/// ((x0 . x1) . x2) . ... `context` goes to `combine` as it is. Used by collectives_options::user_op.
COLLECTIVES_EXPORT collectives_error collectives_user_op_create(const char* name, collectives_combine combine,
                                                                void* context, int commutative,
                                                                collectives_user_op** op);
/// Not while an operation uses it.
COLLECTIVES_EXPORT void collectives_user_op_free(collectives_user_op* op);

/// How f32 values become bytes and f32 values again. What must hold, and is assumed:
///   Law        encode(decode(bytes)) gives the same bytes, for all that encode() has made.
///   Blocks     elements are coded in blocks of `block`, the last of which may be shorter, each for itself.
///   Rate       encoded_bytes() depends on the count alone: n blocks make n times the bytes of one, nothing makes none.
///   Agreement  every machine makes the same bytes of the same values, and every rank passes a codec of one name.
/// Values lie aligned, bytes anywhere; decode() gets bytes from another process and makes some values of any.
typedef struct collectives_codec_functions {
  size_t size;       ///< sizeof(collectives_codec_functions)
  const char* name;  ///< of the format: another format has another name
  size_t block;      ///< elements that are coded together; 0: 1
  void* context;     ///< goes to the functions as it is
  size_t (*encoded_bytes)(void* context, size_t count);
  void (*encode)(void* context, const float* values, size_t count, void* bytes);
  void (*decode)(void* context, const void* bytes, float* values, size_t count);
} collectives_codec_functions;
COLLECTIVES_EXPORT collectives_error collectives_codec_create(const collectives_codec_functions* functions,
                                                              collectives_codec** codec);
/// Not while an operation uses it.
COLLECTIVES_EXPORT void collectives_codec_free(collectives_codec* codec);

// ---- top-k ----

/// What is done when NaN or infinity is among what a rank has to give: it is sent; the call gives zeros; or it fails
/// with ABORTED on every rank, naming tensor, index, and the rank, or the ranks of the host. If zeros or ABORTED, what
/// is kept is as before the call, but for the others' finite gradients in it, and without what has become too large to
/// arrive.
typedef enum collectives_non_finite COLLECTIVES_ENUM {
  COLLECTIVES_NON_FINITE_PROPAGATE = 0,
  COLLECTIVES_NON_FINITE_SKIP = 1,
  COLLECTIVES_NON_FINITE_ABORT = 2
} collectives_non_finite;

/// How those who have chosen come to the sum: as is faster; everyone sends everything to everyone; everyone owns a
/// range, adds what is chosen of it, and sends the sum to everyone.
typedef enum collectives_sparse_form COLLECTIVES_ENUM {
  COLLECTIVES_SPARSE_AUTOMATIC = 0,
  COLLECTIVES_SPARSE_GATHERED = 1,
  COLLECTIVES_SPARSE_SPLIT = 2
} collectives_sparse_form;

typedef struct collectives_top_k_options {
  size_t size;                        ///< sizeof(collectives_top_k_options)
  double density;                     ///< k = density * count, rounded up; in (0, 1]; 0: 0.01
  size_t k;                           ///< if not 0: exactly so many, or all of a tensor that has fewer
  double momentum;                    ///< what is sent is velocity = momentum * velocity + gradient; in [0, 1)
  double clip;                        ///< if not 0: gradients are scaled to a norm of at most clip / sqrt(ranks) each
  size_t warm_up_calls;               ///< of each tensor, in which the density falls from warm_up_density; not with k
  double warm_up_density;             ///< in (0, 1]; 0: 0.25
  const char* values;                 ///< what values travel as: "bf16"; NULL, "f32": as they are
  collectives_switch error_feedback;  ///< keep what is not sent; default: on
  /// The velocity of what was sent starts again from 0, but where everything was; default: on.
  collectives_switch masking;
  collectives_non_finite non_finite;  ///< default: propagate
  collectives_sparse_form form;       ///< default: automatic
} collectives_top_k_options;

/// A compressor, used by collectives_options::compressor: every rank sends the k largest elements of a tensor and keeps
/// the rest for the next call of that name. `options` may be NULL. Serves any number of communicators, but not two
/// threads at once; calls of one name follow one another. A call that failed counts as none that was made, and has sent
/// nothing: what was owed is owed, and so is what of its gradient had been added by then, which therefore is not to be
/// given again. If it had already ended on other ranks, what ranks keep does not fit together any more: load what was
/// saved.
COLLECTIVES_EXPORT collectives_error collectives_top_k_create(const collectives_top_k_options* options,
                                                              collectives_top_k** top_k);

/// What the last call for a tensor did, on this rank.
typedef struct collectives_top_k_report {
  size_t size;            ///< sizeof(collectives_top_k_report), set by the caller
  uint64_t calls;         ///< so far
  size_t sparse;          ///< 1, or 0: everything was sent
  const char* reason;     ///< why; valid until the next report of this compressor, or its end
  size_t count;           ///< elements of the tensor
  size_t chosen;          ///< of them by this rank, of its slice if ranks of a host share the work
  size_t union_size;      ///< elements to which anybody contributed, in this rank's slice
  uint64_t raw_bytes;     ///< 2 (p - 1) / p of the tensor, which an all-reduce of p ranks sends at least
  uint64_t sent_bytes;    ///< that this rank sent of what was chosen; raw_bytes where everything was sent
  double coding_seconds;  ///< choosing, writing, adding
  double residual_norm;   ///< of what is kept now
  double relative_error;  ///< residual_norm over the norm of all that there was to give
} collectives_top_k_report;
/// `name`: of a tensor; INVALID_ARGUMENT for one that no call has had. Takes a pass over what is kept.
COLLECTIVES_EXPORT collectives_error collectives_top_k_get_report(collectives_top_k* top_k, const char* name,
                                                                  collectives_top_k_report* report);

/// All that this rank keeps, for checkpoints; between calls. `*state`: `*bytes` bytes, ended by collectives_free().
COLLECTIVES_EXPORT collectives_error collectives_top_k_save(const collectives_top_k* top_k, void** state,
                                                            size_t* bytes);
/// Takes over what the `saved` ranks of a run had saved, states[r], of bytes[r] bytes, that of rank r, in place of what
/// is here. With as many ranks in as many hosts as then, calls go on bit for bit as if there had been no break. With
/// others, rank r takes over what ranks r, r + ranks, r + 2 ranks, ... had; velocities start again.
/// INVALID_ARGUMENT for what collectives_top_k_save() has not made.
COLLECTIVES_EXPORT collectives_error collectives_top_k_load(collectives_top_k* top_k, const void* const* states,
                                                            const size_t* bytes, size_t saved, int rank, int ranks);
/// Not while an operation uses it.
COLLECTIVES_EXPORT void collectives_top_k_free(collectives_top_k* top_k);

#ifdef __cplusplus
}  // extern "C"
#endif
#undef COLLECTIVES_ENUM
