// Communicator: a fixed set of ranks that perform collectives together.
//
//   collectives::Communicator comm = collectives::Communicator::from_environment();
//   comm.all_reduce(gradient, sum, ReduceOp::average);                    // blocking
//   collectives::Work work = comm.all_reduce_async(gradient, sum);        // asynchronous
//   ...
//   work.wait();
//
// Every collective has these properties:
//
// Shape. The comment of each call states its shape: the required numbers of elements of its buffers. A count may be 0.
// All ranks pass equal counts, unless the comment of the call says otherwise.
//
// In place. Input and output of a call may overlap only as the comment of the call says after "In place". Any other
// overlap throws Error{invalid_argument}.
//
// Order of addition. A plan is the algorithm that the library chooses for a call. The plan determines the order in
// which contributions are added. Equal plans and inputs therefore give equal bits, on every rank and in every run. With
// the option `deterministic`, contributions are added in rank order, which gives the same bits with every plan.
//
// Order of calls. All ranks must make the calls of one communicator in the same order. The operations of these calls
// begin in this order.
//
// Threads. A communicator accepts one collective at a time. A second thread that calls another one during it gets
// Error{invalid_argument}. A thread may make point-to-point calls beside it, and any thread may call abort(). In a
// child of fork(), calls that communicate throw Error{invalid_argument}.
//
// Errors. A collective that throws Error{invalid_argument} or Error{unsupported} sends no data. If all ranks throw it,
// the communicator stays usable; otherwise ranks get mismatch. After mismatch, timeout, peer_lost, aborted and an
// Error{system} of a collective, test() or wait(), the communicator is broken. Calls that need other ranks throw the
// same error again. The head of error.hpp lists what still works.
//
// Buffers. The buffers of a blocking call belong to the program again when the call ends. The buffers of an
// asynchronous call belong to the program again when wait() ends, or when test() returns true. Both hold also for an
// end by an error. There are two exceptions. After an error, a stopped rank may still access the buffers (error.hpp). A
// blocking call with a GPU stream may return before the GPU has used the buffers (Options::stream).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/codec.hpp"
#include "collectives/deadline.hpp"
#include "collectives/device_memory.hpp"
#include "collectives/error.hpp"
#include "collectives/export.hpp"
#include "collectives/memory.hpp"
#include "collectives/messages.hpp"
#include "collectives/persistent_call.hpp"
#include "collectives/plan.hpp"
#include "collectives/records.hpp"
#include "collectives/top_k.hpp"
#include "collectives/topology.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Options of one call. For an unset option, the communicator's setting applies.
struct Options {
  std::string_view backend = {};           ///< Backend: "ring", "hierarchical", "reduce_to_one", "auto".
  std::string_view name = {};              ///< Name of the tensor, at most 256 bytes. All ranks pass the same name.
  std::chrono::nanoseconds timeout = {};   ///< Maximum duration. 0: the communicator's; max(): no limit.
  std::optional<bool> deterministic = {};  ///< True: adds contributions in rank order.
  /// Format in which f32 values travel between hosts: DataType::bf16, DataType::f16 or a Codec, which must outlive the
  /// call. All ranks still get the same bits. A value is rounded at most twice, for any number of ranks.
  ///
  /// If sending the values unchanged is estimated to be as fast, they are sent unchanged, unless `deterministic` is
  /// set. explain() states the reason.
  WireFormat wire = {};
  /// Compressor, with which only the largest elements are sent (top_k.hpp). Requires an all_reduce of f32 by sum or
  /// average, and a `name` that identifies the same tensor in every call. If the whole vector is sent after all, `wire`
  /// is the format of its values.
  TopK* compressor = nullptr;
  bool force = false;  ///< True: compress even if that is slower.
  /// Stream of a call on GPU memory: a cudaStream_t; null is CUDA's default stream. The operation reads and writes its
  /// buffers after the work that the stream contains at the time of the call.
  ///
  /// A blocking call may return before the GPU has performed the operation. Work added to the stream afterwards sees
  /// the result. The Work of an asynchronous call is finished when the result is complete.
  ///
  /// Without a stream the buffers must be ready at the call, and the result is complete when it ends. See docs/gpu.md.
  std::optional<void*> stream = {};
};

/// Options of a communicator. Environment variables (docs/environment.md) override the defaults, but not the values
/// that a program sets.
struct CommunicatorOptions {
  std::string backend = {};  ///< Backend. Empty: COLLECTIVES_BACKEND, or "auto".
  /// Deadline of each call and of construction. 0: COLLECTIVES_TIMEOUT, or 10 min.
  std::chrono::nanoseconds timeout = {};
  /// Delay after which a call is reported on stderr.
  std::chrono::nanoseconds stall_report = std::chrono::seconds(30);
  std::optional<bool> deterministic = {};    ///< Empty: COLLECTIVES_DETERMINISTIC, or false.
  std::optional<bool> progress_thread = {};  ///< Empty: only with spare cores, or with NCCL.
  /// Tuning. Rank 0's value applies to all ranks. Empty: COLLECTIVES_TUNING, or the numbers measured on this machine.
  /// A changed copy of tuning() keeps its measured internal numbers. split() uses the parent's tuning instead.
  std::optional<Tuning> tuning = {};
  /// Transport of messages between all ranks: "shared_memory" (one host only), or "tcp", "ucx", "mpi", also inside a
  /// host. Empty: COLLECTIVES_TRANSPORT, or shared memory inside hosts and `wire` between them.
  std::string transport = {};
  /// Transport between hosts: "tcp", "ucx", "mpi". Empty: COLLECTIVES_WIRE, or the best that all ranks have.
  std::string wire = {};
  /// True: buffers may be on the GPU that is current (cudaSetDevice) to the thread that constructs the communicator. If
  /// that is not possible, all ranks throw Error{unsupported}. Empty: true if this process already uses CUDA.
  std::optional<bool> device_buffers = {};
  /// Faults to cause, so that the program can test how it handles them: "kill rank=2 call=17; delay rank=1 call=5
  /// ms=300" (docs/fault_injection.md). Empty: COLLECTIVES_INJECT, except in split(). "none": no faults.
  std::string inject = {};
};

/// Handle of an asynchronous operation. Move-only. Destroying an unfinished Work waits for it and drops its error.
///
/// The operation progresses in every blocking call, wait() and test() of the thread that last used its communicator,
/// even if the call concerns another communicator. It also progresses in the communicator's progress thread if there is
/// one. Ranks may therefore wait for operations of several communicators in different orders. Exception: a thread that
/// waits in a bootstrap, while it constructs a communicator, progresses no operation.
class COLLECTIVES_EXPORT Work {
 public:
  Work() noexcept;
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Progresses the operation. Returns true if it is finished. Throws its error if it has failed.
  ///
  /// Does not wait for other ranks, with one exception. A thread that only tests keeps the core from the rank whose
  /// part is missing. After 1,000 fruitless calls in a row test() therefore sleeps for 1 us, which Linux's timer slack
  /// lengthens to 50 to 80 us. It does so only if the thread used less than about 1 us of CPU time between two calls,
  /// not counting its yields. After a yield of this process took over 2 ms, 32 such calls suffice for 20 ms. test()
  /// never sleeps if each rank of the host has a core.
  bool test();
  /// Blocks until the operation is finished. Throws its error if it has failed, such as Error{timeout} after its
  /// deadline.
  void wait();
  /// Blocks for at most `timeout`. Returns true if the operation is finished. If not, the operation continues.
  bool wait_for(std::chrono::nanoseconds timeout);
  /// Returns the rank whose message a finished receive has taken. Returns kNoRank for other operations, and while the
  /// receive is not finished.
  Rank source() const noexcept { return source_; }

 private:
  friend class Communicator;
  friend struct ForeignCall;
  friend class Group;
  friend class PointToPointCalls;
  struct State;
  explicit Work(std::shared_ptr<State>) noexcept;
  bool wait_until(Deadline);
  std::shared_ptr<State> state_;
  Rank source_ = kNoRank;
};

class Group;

/// Fixed set of ranks. The head of this file states what all its collectives have in common. Move-only.
// More than 30 functions: it is the public interface, with two functions, blocking and asynchronous, per collective.
class COLLECTIVES_EXPORT Communicator {
 public:
  /// Connects to the other ranks of `bootstrap`, which is needed only during construction.
  explicit Communicator(Bootstrap& bootstrap, const CommunicatorOptions& options = {});
  explicit Communicator(Bootstrap&& bootstrap, const CommunicatorOptions& options = {})
      : Communicator(bootstrap, options) {}
  /// Makes a communicator of the ranks that mpirun, srun, torchrun, TF_CONFIG or collectives_run describe. Without any
  /// of them it has one rank.
  static Communicator from_environment(const CommunicatorOptions& options = {});

  Communicator(Communicator&&) noexcept;  ///< Leaves an object that may only be destroyed or assigned to.
  Communicator& operator=(Communicator&&) noexcept;
  /// Does not wait for the other ranks to finish. Unfinished operations of the other ranks fail with peer_lost. The
  /// buffers of this rank's unfinished operations belong to the program again. Unless the communicator has failed,
  /// waits until this rank's messages are sent. This wait takes at most 10 s.
  ~Communicator();

  Rank rank() const noexcept;
  int size() const noexcept;
  const Topology& topology() const noexcept;
  /// Returns the numbers with which plans are chosen. A copy of it also holds the internal ones (tuning.hpp).
  const Tuning& tuning() const noexcept;
  /// Returns "shared_memory", "local" (ranks are threads), "mpi", or a pair such as "shared_memory+mpi".
  std::string_view transport() const noexcept;

  /// Reduces `input` element by element over all ranks. Every rank receives the same `output`, bit for bit.
  ///
  /// Shape: input.count == output.count. In place: input.data == output.data.
  ///
  /// Cost on the wire: see explain(). A ring of p ranks takes 2 (p - 1) hops. Each rank sends 2 (p - 1) / p of the
  /// bytes.
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                      const Options& = {});
  [[nodiscard]] Work all_reduce_async(Buffer data, ReduceOp op = ReduceOp::sum, const Options& = {});

  /// Reduces `input` over all ranks. Rank r receives part r of the result.
  ///
  /// Shape: input.count == size() * output.count. In place: output.data is part rank() of the input.
  void reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                          const Options& = {});
  /// Does a reduce_scatter with parts of unequal length: rank r receives the result of part r of the input. `parts` is
  /// the layout of the input, equal on every rank. Parts may overlap.
  ///
  /// Shape: input.count is the sum of the counts, or with displacements at least the end of every part. output.count is
  /// counts[rank()]. In place: output.data is part rank() of the input, which then overlaps no other part.
  ///
  /// Displacements require buffers in host memory.
  void reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op = ReduceOp::sum,
                        const Options& = {});
  [[nodiscard]] Work reduce_scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts,
                                            ReduceOp op = ReduceOp::sum, const Options& = {});

  /// Gathers the inputs of all ranks on every rank, in rank order.
  ///
  /// Shape: output.count == size() * input.count. In place: input.data is part rank() of the output.
  void all_gather(ConstBuffer input, Buffer output, const Options& = {});
  [[nodiscard]] Work all_gather_async(ConstBuffer input, Buffer output, const Options& = {});
  /// Does an all_gather with parts of unequal length: the input of rank r becomes part r of every output. `parts` is
  /// the layout of the output, equal on every rank. Parts must not overlap. Elements between parts keep their values.
  ///
  /// Shape: input.count is counts[rank()]. output.count is the sum of the counts, or with displacements at least the
  /// end of every part. In place: input.data is part rank() of the output.
  ///
  /// Displacements require buffers in host memory.
  void all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& = {});
  [[nodiscard]] Work all_gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& = {});

  /// Copies the root's `data` to `data` of every rank. Shape: equal counts.
  void broadcast(Buffer data, Rank root, const Options& = {});
  /// Copies the root's `input` to `output` of every rank, the root included. Ranks other than the root may pass an
  /// empty input.
  ///
  /// Shape: input.count == output.count at the root. In place at the root: input.data == output.data.
  void broadcast(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] Work broadcast_async(Buffer data, Rank root, const Options& = {});
  [[nodiscard]] Work broadcast_async(ConstBuffer input, Buffer output, Rank root, const Options& = {});

  /// Reduces `input` over all ranks. Rank `root` receives the result. Other ranks may pass an empty `output`.
  ///
  /// Shape: input.count == output.count at the root. In place at the root: input.data == output.data.
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& = {});
  [[nodiscard]] Work reduce_async(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& = {});

  /// Sends part r of `input` to rank r. Part r of `output` comes from rank r.
  ///
  /// Shape: input.count == output.count, a multiple of size(). In place: input.data == output.data. The option
  /// `deterministic` has no meaning.
  ///
  /// Cost on the wire: each rank sends (p - 1) / p of its input.
  void all_to_all(ConstBuffer input, Buffer output, const Options& = {});
  [[nodiscard]] Work all_to_all_async(ConstBuffer input, Buffer output, const Options& = {});
  /// Does an all_to_all with parts of unequal length. Part r of the input has as many elements as rank r expects from
  /// this rank. Layouts may differ between ranks. Parts of the output must not overlap.
  ///
  /// Shape: the length of a buffer is the sum of its counts, or with displacements at least the end of every part. In
  /// place: input.data == output.data, with equal layouts. Requires host memory.
  void all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output, const PartLayout& output_parts,
                    const Options& = {});
  [[nodiscard]] Work all_to_all_v_async(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                        const PartLayout& output_parts, const Options& = {});

  /// Gathers the inputs of all ranks at the root, in rank order. Other ranks may pass an empty `output`.
  ///
  /// Shape: output.count == size() * input.count at the root. In place at the root: input.data is part rank() of the
  /// output. The option `deterministic` has no meaning.
  ///
  /// Cost on the wire: each part once, from its host to the root's. See explain().
  void gather(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] Work gather_async(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  /// Does a gather with parts of unequal length: the input of rank r becomes part r of the root's output. `parts` is
  /// the layout of the output. It matters only at the root, and other ranks may pass an empty one. Parts must not
  /// overlap. Requires host memory.
  ///
  /// Shape at the root: counts[r] is input.count of rank r. output.count is the sum of the counts, or with
  /// displacements at least the end of every part. In place at the root: input.data is part rank() of the output.
  void gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& = {});
  [[nodiscard]] Work gather_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                    const Options& = {});

  /// Copies part r of the root's `input` to `output` of rank r. Ranks other than the root may pass an empty input.
  ///
  /// Shape: input.count == size() * output.count at the root. In place at the root: output.data is part rank() of the
  /// input. The option `deterministic` has no meaning.
  ///
  /// Cost on the wire: each part once, from the root's host to its own. See explain().
  void scatter(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] Work scatter_async(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  /// Does a scatter with parts of unequal length, in host memory: rank r receives part r of the root's input. `parts`
  /// is the layout of the input. It matters only at the root. Other ranks may pass an empty one. Parts may overlap.
  ///
  /// Shape at the root: counts[r] is output.count of rank r. input.count is the sum of the counts, or with
  /// displacements at least the end of every part. In place at the root: output.data is part rank() of the input.
  void scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& = {});
  [[nodiscard]] Work scatter_v_async(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                     const Options& = {});

  /// Reduces the inputs of ranks 0 to r element by element. Rank r receives the result in `output`. The op need not
  /// commute.
  ///
  /// Shape: input.count == output.count. In place: input.data == output.data.
  ///
  /// Order: contributions are combined in rank order. An average divides by r + 1, the number of contributions.
  void scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work scan_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  /// Does a scan without the rank's own contribution: rank r receives the reduced inputs of ranks 0 to r - 1. Rank 0
  /// may pass an empty `output`, which is not written. An average divides by r.
  void exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work exclusive_scan_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                          const Options& = {});

  /// Blocks until every rank has called it.
  void barrier(const Options& = {});
  [[nodiscard]] Work barrier_async(const Options& = {});

  /// Sends `data` to rank `to`, which receives it with recv(). The buffer belongs to the program again when the call
  /// ends. The call may end before `to` has received the message.
  ///
  /// Shape: the receiver passes the same count and type. Otherwise both ranks get Error{mismatch}, which names both
  /// counts and types. The sender may get it in its next call.
  ///
  /// Order: a receive takes messages of one sender with one tag in the order in which they were sent. `tag` is 0 to
  /// kLargestTag. A rank may send to itself: a receive of its own takes the message.
  ///
  /// Point-to-point calls are independent of collectives. Neither waits for the other. One thread may be in a
  /// collective while another thread is in a point-to-point call. Only one thread at a time makes point-to-point calls.
  ///
  /// Cost on the wire: one message if it is short (32 KiB between hosts). A longer one is announced first, and its data
  /// follow when a receive has matched it. A receiver stores at most 256 KiB of unmatched messages of one sender.
  ///
  /// Errors: a bad rank, tag or buffer is Error{invalid_argument}. Nothing was sent then, and the receiver is not told.
  /// Of the options, only `timeout` and `name` matter. Device memory, a stream, a codec, a compressor or a backend is
  /// Error{unsupported}.
  void send(ConstBuffer data, Rank to, int tag = 0, const Options& = {});
  /// Starts a send. The buffer must not change until the Work has finished.
  [[nodiscard]] Work send_async(ConstBuffer data, Rank to, int tag = 0, const Options& = {});
  /// Receives the next message from rank `from` with this tag. Returns its sender. `from` may be any_source: the call
  /// then takes the message that has arrived first.
  ///
  /// Shape, order and errors: see send(). A deadline error names the rank, the tag, and other messages that wait for a
  /// receive. If ranks wait for one another in a cycle, it names them all.
  Rank recv(Buffer data, Rank from, int tag = 0, const Options& = {});
  /// Starts a receive. Receives match messages in the order in which they were started.
  [[nodiscard]] Work recv_async(Buffer data, Rank from, int tag = 0, const Options& = {});
  /// Sends `input` to rank `to` and receives `output` from rank `from` at the same time, both with `tag`. Returns the
  /// rank that has sent `output`. The buffers must not overlap.
  Rank sendrecv(ConstBuffer input, Rank to, Buffer output, Rank from, int tag = 0, const Options& = {});
  [[nodiscard]] Work sendrecv_async(ConstBuffer input, Rank to, Buffer output, Rank from, int tag = 0,
                                    const Options& = {});

  // ---- persistent calls (persistent_call.hpp) ----
  //
  // Each function makes a persistent call with the shape, the order and the cost of the call of its name. It throws the
  // Error{invalid_argument} and Error{unsupported} of that call, and Error{unsupported} for a compressor. It sends
  // nothing and is not collective. An error concerns this rank only.

  [[nodiscard]] PersistentCall persistent_all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                                     const Options& = {});
  [[nodiscard]] PersistentCall persistent_all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] PersistentCall persistent_reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                                         const Options& = {});
  [[nodiscard]] PersistentCall persistent_reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts,
                                                           ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] PersistentCall persistent_all_gather(ConstBuffer input, Buffer output, const Options& = {});
  [[nodiscard]] PersistentCall persistent_all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts,
                                                       const Options& = {});
  [[nodiscard]] PersistentCall persistent_broadcast(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] PersistentCall persistent_broadcast(Buffer data, Rank root, const Options& = {});
  [[nodiscard]] PersistentCall persistent_reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root,
                                                 const Options& = {});
  [[nodiscard]] PersistentCall persistent_all_to_all(ConstBuffer input, Buffer output, const Options& = {});
  [[nodiscard]] PersistentCall persistent_all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output,
                                                       const PartLayout& output_parts, const Options& = {});
  [[nodiscard]] PersistentCall persistent_gather(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] PersistentCall persistent_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root,
                                                   const Options& = {});
  [[nodiscard]] PersistentCall persistent_scatter(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] PersistentCall persistent_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts,
                                                    Rank root, const Options& = {});
  [[nodiscard]] PersistentCall persistent_scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                               const Options& = {});
  [[nodiscard]] PersistentCall persistent_exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                                         const Options& = {});
  [[nodiscard]] PersistentCall persistent_barrier(const Options& = {});
  [[nodiscard]] PersistentCall persistent_send(ConstBuffer data, Rank to, int tag = 0, const Options& = {});
  [[nodiscard]] PersistentCall persistent_recv(Buffer data, Rank from, int tag = 0, const Options& = {});
  [[nodiscard]] PersistentCall persistent_sendrecv(ConstBuffer input, Rank to, Buffer output, Rank from, int tag = 0,
                                                   const Options& = {});

  /// Returns an empty group, which performs many small operations as few large ones; see Group.
  Group group();

  /// Makes a communicator for each distinct `color` (0 and up). Its ranks are ordered by `key`, then by rank here.
  ///
  /// Collective over this communicator. A rank with a negative color takes part and receives no communicator.
  std::optional<Communicator> split(int color, int key = 0, const CommunicatorOptions& options = {});

  /// Makes a communicator of the ranks in `ranks`. Only these ranks call it, so it is not collective over this
  /// communicator. Rank ranks[i] has rank i there. All members pass equal lists and names. An option that is not set
  /// has the value of this communicator.
  ///
  /// Members find one another by the list and `name`. Members that make several communicators at a time need one name
  /// for each. Ranks outside the list may be in any call, or may have ended. The members must not have a call of this
  /// communicator in which they wait for one another.
  ///
  /// Throws Error{invalid_argument} for a rank that is out of range or listed twice, for a list without the caller, and
  /// if another thread is in a create_group() of this communicator.
  /// Throws Error{mismatch} that names both ranks and lists, if another member passed another list with this name.
  /// Throws Error{timeout} that names the members that did not come, and Error{peer_lost} for a member that has ended.
  /// This communicator stays usable after these errors. All members may call again at once, also with this name.
  Communicator create_group(std::span<const Rank> ranks, std::string_view name = {},
                            const CommunicatorOptions& options = {});

  /// Allocates `count` elements, all bytes zero, in memory that the other ranks of this host can access. Collectives on
  /// it copy nothing; see memory.hpp.
  ///
  /// Not collective: each rank allocates on its own. It may mix such memory with ordinary buffers. Throws Error{system}
  /// that names this rank, the refused request and the setting to change. The communicator then stays usable.
  template <class T>
  SharedArray<T> allocate(std::size_t count) const {
    return SharedArray<T>(allocate_bytes(SharedArray<T>::bytes_of(count), SharedArray<T>::kAlignment));
  }
  /// Allocates `bytes` bytes in the same way. `alignment` is a power of two. The address is a multiple of at least 64.
  SharedMemory allocate_bytes(std::size_t bytes, std::size_t alignment = 64) const;
  /// Returns an allocator for standard containers:
  ///
  ///   std::vector<float, SharedAllocator<float>> sum(1000, comm.allocator<float>());
  template <class T>
  SharedAllocator<T> allocator() const noexcept {
    return {};
  }

  /// Allocates `count` uninitialized elements on the communicator's GPU, in the kind of memory that suits its calls
  /// best; see device_memory.hpp.
  ///
  /// Not collective. Throws Error{unsupported} if the communicator takes no device buffers. Throws Error{system} that
  /// names this rank and the request that CUDA or NCCL refused. The communicator then stays usable.
  template <Element T>
  DeviceArray<T> allocate_on_device(std::size_t count) {
    return DeviceArray<T>(allocate_bytes_on_device(SharedArray<T>::bytes_of(count)));
  }
  /// Allocates `bytes` bytes in the same way.
  DeviceMemory allocate_bytes_on_device(std::size_t bytes);
  /// Registers the program's device memory for calls: a whole allocation or a range of one. The registration lasts
  /// until the result is destroyed, which must happen before the memory is freed. A range inside a registered range
  /// shares its registration.
  ///
  /// Not collective. Throws like allocate_on_device. Throws Error{invalid_argument} if the memory is not on this GPU,
  /// or is not part of one allocation. Also throws if the memory overlaps a registered range without lying inside it.
  [[nodiscard]] DeviceMemory register_memory(void* data, std::size_t bytes);

  /// Fails every current and later operation of this communicator, on every rank, with Error{aborted} and `reason`.
  /// Ranks inside a call throw within a second. Other ranks throw at their next call. Any thread may call it.
  ///
  /// Between hosts over an MPI without MPI_THREAD_MULTIPLE, abort() itself may not call MPI. The second then begins
  /// when a rank of this host is next in a call or destroys the communicator.
  void abort(std::string_view reason) noexcept;

  /// Progresses unfinished asynchronous operations without waiting.
  void progress();

  /// Describes in words how a call would be done. With a stream in the options it describes a call on device memory.
  std::string explain(Collective, std::size_t count, DataType, ReduceOp op = ReduceOp::sum, const Options& = {}) const;
  /// Returns the plan of a call.
  Plan plan(Collective, std::size_t count, DataType, ReduceOp op = ReduceOp::sum, const Options& = {}) const;

  /// Returns the bytes that this rank has passed to transports and intra-host collectives since construction.
  std::uint64_t bytes_sent() const noexcept;
  /// Returns the part of bytes_sent() that is payload of messages to other hosts.
  std::uint64_t bytes_sent_to_other_hosts() const noexcept;
  /// Returns bytes and time of the encoded messages since construction.
  CodingReport coding() const noexcept;

  /// Returns the last 64 operations that have started, and the operations queued behind them, oldest first. If a rank
  /// hangs, `collectives_info watch` and COLLECTIVES_FLIGHT_RECORDER show the same from outside.
  std::vector<OperationRecord> recent_operations() const;
  /// Returns the last 64 point-to-point calls, oldest first.
  std::vector<MessageRecord> recent_messages() const;
  /// Returns calls, bytes and times of each collective since construction. Counting costs a few nanoseconds per call.
  Counters counters() const;

 private:
  friend class Calibration;   // sets the tuning between calls
  friend struct CallRefusal;  // publishes refusals of other interfaces
  friend class DeviceMemory;
  friend struct ForeignCall;  // performs calls of other interfaces
  friend class Group;
  friend class PointToPointCalls;
  friend class PersistentCall;
  friend class Work;
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Group of collectives and messages, which are performed together. Small operations of equal collective, type, op,
/// root and options share one call: the group packs their tensors into one buffer, and unpacks the results. Every rank
/// adds the same collectives in the same order. If the order differs, the ranks get a mismatch. The group can be used
/// again after run().
///
///   Group group = comm.group();
///   for (auto& tensor : gradients) group.all_reduce(tensor, ReduceOp::average);
///   group.broadcast(settings, 0);
///   group.run();
///
/// Tensors that are adjacent in memory, and long operations, are not copied. Between hosts, an operation is long above
/// 1 MiB. Inside a host, an all_reduce is long above 64 KiB, another reduction or scan above 1 KiB, and any other
/// operation above 256 bytes. Exception: a list of tensors that are not adjacent is always copied, except in device
/// memory. There, it is performed as one broadcast or one reduction for each tensor.
///
/// No output of an operation may overlap the input or the output of another operation of the group. Inputs may overlap
/// one another. An overlap is Error{invalid_argument} of run(). Missing memory is Error{system}. Both empty the group.
///
/// The functions that add an operation check its arguments like the functions of Communicator. The buffers belong to
/// the group until run() or Work::wait() has ended. The lists of counts, displacements and tensors are copied.
class COLLECTIVES_EXPORT Group {
 public:
  explicit Group(Communicator& comm);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const Options& = {});
  void reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  /// Adds a reduce_scatter from a list of tensors. Rank r receives the result of inputs[r].
  ///
  /// Shape: inputs.size() == size(), and output.count == inputs[rank()].count. The count of inputs[r] is equal on every
  /// rank. In place: output.data == inputs[rank()].data.
  void reduce_scatter(std::span<const ConstBuffer> inputs, Buffer output, ReduceOp op = ReduceOp::sum,
                      const Options& = {});
  void reduce_scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, ReduceOp op = ReduceOp::sum,
                        const Options& = {});
  void all_gather(ConstBuffer input, Buffer output, const Options& = {});
  /// Adds an all_gather into a list of tensors. The input of rank r goes to outputs[r].
  ///
  /// Shape: outputs.size() == size(), and input.count == outputs[rank()].count. The count of outputs[r] is equal on
  /// every rank. In place: input.data == outputs[rank()].data.
  void all_gather(ConstBuffer input, std::span<const Buffer> outputs, const Options& = {});
  void all_gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, const Options& = {});
  void broadcast(Buffer data, Rank root, const Options& = {});
  void broadcast(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& = {});
  /// Adds an all_to_all, gather, scatter or scan; see Communicator. The forms with counts of all_to_all, gather and
  /// scatter share no calls. They are performed as they would be outside of a group.
  void all_to_all(ConstBuffer input, Buffer output, const Options& = {});
  void all_to_all_v(ConstBuffer input, const PartLayout& input_parts, Buffer output, const PartLayout& output_parts,
                    const Options& = {});
  void gather(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  void gather_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& = {});
  void scatter(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  void scatter_v(ConstBuffer input, Buffer output, const PartLayout& parts, Rank root, const Options& = {});
  void scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  void exclusive_scan(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  /// Adds a barrier: no rank ends the group before every rank has started it.
  void barrier(const Options& = {});
  /// Adds a send or a receive; see Communicator::send(). Messages start together, receives before sends. Other ranks
  /// need not add the same ones, nor use a group. Work::source() names the sender of the last receive.
  void send(ConstBuffer data, Rank to, int tag = 0, const Options& = {});
  void recv(Buffer data, Rank from, int tag = 0, const Options& = {});
  /// Performs all added operations and empties the group.
  void run();
  /// Starts all added operations and empties the group. The Work owns them.
  [[nodiscard]] Work run_async();

 private:
  friend struct CallRefusal;  // publishes refusals of other interfaces
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace collectives
