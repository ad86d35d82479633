// The communicator: a fixed set of ranks that perform collectives together.
//
//   collectives::Communicator comm = collectives::Communicator::from_environment();
//   comm.all_reduce(gradient, sum, ReduceOp::average);                    // blocking
//   collectives::Work work = comm.all_reduce_async(gradient, sum);        // and not
//   ...
//   work.wait();
//
// What holds for every collective:
//   Shape     as given at each call, equal on every rank; any count from 0.
//   In place  where the comment says so; any other overlap of input and output is invalid_argument.
//   Order     fixed by the plan: same plan and inputs, same bits, on every rank and in every run. `deterministic` gives
//             the same bits whatever the backend, segmenting or size: contributions are added in rank order.
//   Issue     operations of one communicator run in the order in which they are issued, the same on every rank.
//   Threads   one call at a time per communicator; abort() from any thread. A child of fork() is refused.
//   Throws    Error: invalid_argument, unsupported (nothing sent, communicator still good); mismatch, timeout,
//             peer_lost, aborted, system (communicator broken, see error.hpp).
//   Buffers   the program's own again when the call or wait() ends, by an error too; error.hpp names the one exception,
//             a rank that was stopped in the middle of a piece.
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
#include "collectives/plan.hpp"
#include "collectives/records.hpp"
#include "collectives/top_k.hpp"
#include "collectives/topology.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Of one call. What is left out is the communicator's.
struct Options {
  std::string_view backend = {};           ///< "ring", "hierarchical", "reduce_to_one", "auto"
  std::string_view name = {};              ///< of the tensor: shown in errors
  std::chrono::nanoseconds timeout = {};   ///< 0: the communicator's; nanoseconds::max(): none
  std::optional<bool> deterministic = {};  ///< the same bits whatever the backend, segmenting or size
  /// What f32 values travel as between ranks that share no memory: DataType::bf16, f16, or a Codec, which outlives the
  /// call. Every rank ends with the same bits, rounded twice at most, whatever the number of ranks. Where values as
  /// they are would be as fast, they are sent so, unless `deterministic`; explain() says why.
  WireFormat wire = {};
  /// Of all_reduce of f32, by sum or average: only the largest elements travel. Needs `name`, which stands for the same
  /// tensor in every call. `wire` says what values travel as where everything is sent.
  TopK* compressor = nullptr;
  bool force = false;  ///< compressed even where that is slower
  /// Of device memory: a cudaStream_t, null for CUDA's default one. What the stream holds at the call comes before the
  /// operation reads or writes. A blocking call may return before the GPU has done it, but what is put into the stream
  /// from then on sees the result; an asynchronous one is finished when the result is there. Without a stream the
  /// buffers must be ready when the call is made, and the result is there when it ends. See docs/gpu.md.
  std::optional<void*> stream = {};
};

/// Of a communicator. Environment variables (see README) override the defaults, not what a program sets.
struct CommunicatorOptions {
  std::string backend = {};               ///< empty: COLLECTIVES_BACKEND, else "auto"
  std::chrono::nanoseconds timeout = {};  ///< of each call and of construction; 0: COLLECTIVES_TIMEOUT, else 10 min
  std::chrono::nanoseconds stall_report = std::chrono::seconds(30);  ///< a call this late is reported on stderr
  std::optional<bool> deterministic = {};                            ///< empty: COLLECTIVES_DETERMINISTIC, else false
  std::optional<bool> progress_thread = {};                          ///< empty: only with spare cores
  /// Rank 0's counts. Empty: COLLECTIVES_TUNING, else what was measured on this machine; of split(): the parent's.
  std::optional<Tuning> tuning = {};
  /// "shared_memory", for one host only, or "tcp", "ucx", "mpi" for messages between all ranks, of one host too; empty:
  /// COLLECTIVES_TRANSPORT, else shared memory inside hosts and `wire` between them.
  std::string transport = {};
  std::string wire = {};  ///< "tcp", "ucx", "mpi"; empty: COLLECTIVES_WIRE, else the best that all ranks have
  /// Buffers may be those of the GPU that is current (cudaSetDevice) to the thread which makes the communicator. Empty:
  /// if this process uses CUDA by then. Where true cannot be had, Error{unsupported}, on all ranks.
  std::optional<bool> device_buffers = {};
};

/// An operation under way. Move-only; destroying an unfinished Work waits for it and drops its error.
///
/// It progresses inside every blocking call, wait() and test(), of whatever communicator, of the thread that used its
/// communicator last, and in the communicator's progress thread if there is one. So ranks may wait for operations of
/// several communicators in different orders. (Only meeting at a bootstrap moves nothing on.)
class COLLECTIVES_EXPORT Work {
 public:
  Work() noexcept;
  Work(Work&&) noexcept;
  Work& operator=(Work&&) noexcept;
  ~Work();

  /// Moves the operation on and returns whether it is finished. Throws what the operation failed with.
  ///
  /// Does not wait for other ranks, with one exception. A thread that only tests keeps the core from the rank whose
  /// part is missing. test() therefore sleeps for 1 us (with Linux's timer slack 50 to 80 us) after 1,000 fruitless
  /// calls in a row between which the thread has used less than about 1 us of CPU time, not counting its yields. After
  /// a yield of this process took over 2 ms, 32 such calls suffice for 20 ms. test() never sleeps if each rank of the
  /// host has a core.
  bool test();
  /// Waits for the end; throws what the operation failed with, Error{timeout} after the operation's deadline.
  void wait();
  /// Waits at most `timeout`; true when it is finished. The operation goes on when it is not.
  bool wait_for(std::chrono::nanoseconds timeout);

 private:
  friend class Communicator;
  friend class Group;
  friend class Observer;  // writes down what becomes of it
  struct State;
  explicit Work(std::shared_ptr<State>) noexcept;
  bool wait_until(Deadline);
  std::shared_ptr<State> state_;
};

class Group;

class COLLECTIVES_EXPORT Communicator {
 public:
  /// Meets the other ranks of `bootstrap`, which is needed only during construction.
  explicit Communicator(Bootstrap& bootstrap, const CommunicatorOptions& options = {});
  explicit Communicator(Bootstrap&& bootstrap, const CommunicatorOptions& options = {})
      : Communicator(bootstrap, options) {}
  /// The ranks that mpirun, srun, torchrun, TF_CONFIG or collectives_run describe; alone when nothing does.
  static Communicator from_environment(const CommunicatorOptions& options = {});

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Does not wait for the other ranks; unfinished operations fail there with peer_lost, and their buffers are free.
  ~Communicator();

  Rank rank() const noexcept;
  int size() const noexcept;
  const Topology& topology() const noexcept;
  const Tuning& tuning() const noexcept;
  /// "shared_memory", "local" (ranks are threads), "mpi", or "shared_memory+mpi".
  std::string_view transport() const noexcept;

  /// Reduces `input` element-wise over all ranks; every rank receives the same `output`, bit for bit.
  /// Shape input.count == output.count. In place: input.data == output.data.
  /// Wire see explain(); ring: 2(p-1) hops, 2(p-1)/p of the bytes per rank.
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  void all_reduce(Buffer data, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                      const Options& = {});

  /// Rank r receives part r of the reduction of `input`.
  /// Shape input.count == size() * output.count. In place: output.data is part rank() of the input.
  void reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                                          const Options& = {});
  /// As reduce_scatter, with parts of unequal length: counts[r] elements for rank r, the same `counts` on every rank.
  /// Shape input.count == sum of counts, output.count == counts[rank()].
  void reduce_scatter_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                        ReduceOp op = ReduceOp::sum, const Options& = {});
  [[nodiscard]] Work reduce_scatter_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                            ReduceOp op = ReduceOp::sum, const Options& = {});

  /// Every rank receives every rank's input, in rank order.
  /// Shape output.count == size() * input.count. In place: input.data is part rank() of the output.
  void all_gather(ConstBuffer input, Buffer output, const Options& = {});
  [[nodiscard]] Work all_gather_async(ConstBuffer input, Buffer output, const Options& = {});
  /// As all_gather, with counts[r] elements from rank r, the same `counts` on every rank.
  void all_gather_v(ConstBuffer input, Buffer output, std::span<const std::size_t> counts, const Options& = {});
  [[nodiscard]] Work all_gather_v_async(ConstBuffer input, Buffer output, std::span<const std::size_t> counts,
                                        const Options& = {});

  /// Every rank's `data` becomes that of `root`.
  void broadcast(Buffer data, Rank root, const Options& = {});
  /// Out of place: every rank's `output`, root's included, becomes root's `input`, which the others may leave empty.
  void broadcast(ConstBuffer input, Buffer output, Rank root, const Options& = {});
  [[nodiscard]] Work broadcast_async(Buffer data, Rank root, const Options& = {});
  [[nodiscard]] Work broadcast_async(ConstBuffer input, Buffer output, Rank root, const Options& = {});

  /// Rank `root` receives the reduction of every rank's `input`; the others may pass an empty `output`.
  /// Shape input.count == output.count at root. In place at root: input.data == output.data.
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& = {});
  [[nodiscard]] Work reduce_async(ConstBuffer input, Buffer output, ReduceOp op, Rank root, const Options& = {});

  /// Returns when every rank has called it.
  void barrier(const Options& = {});
  [[nodiscard]] Work barrier_async(const Options& = {});

  /// Collects many small operations and performs them as few; see Group.
  Group group();

  /// New communicators, one for each distinct `color` (0 and up), ranks ordered by `key`, then by rank here.
  /// Collective over this communicator; a negative color takes part and gets nothing.
  std::optional<Communicator> split(int color, int key = 0, const CommunicatorOptions& options = {});

  /// `count` elements, all bytes zero, in memory that the other ranks of this host reach directly, so that collectives
  /// on it copy nothing; see memory.hpp. Not collective: each rank allocates what it likes, and may mix it with
  /// ordinary buffers. Throws Error{system} naming this rank, what the system refused, and the setting to change.
  template <class T>
  SharedArray<T> allocate(std::size_t count) const {
    return SharedArray<T>(allocate_bytes(SharedArray<T>::bytes_of(count), SharedArray<T>::kAlignment));
  }
  /// The same without a type. `alignment`: a power of two; memory begins at a multiple of at least 64.
  SharedMemory allocate_bytes(std::size_t bytes, std::size_t alignment = 64) const;
  /// For standard containers: `std::vector<float, SharedAllocator<float>> sum(1000, comm.allocator<float>())`.
  template <class T>
  SharedAllocator<T> allocator() const noexcept {
    return {};
  }

  /// `count` elements on the GPU of this communicator, not set to anything, in memory that its calls use best; see
  /// device_memory.hpp. Not collective. Throws Error{unsupported} where it takes no device buffers, Error{system}
  /// naming this rank and what CUDA or NCCL refused; then it is still good.
  template <Element T>
  DeviceArray<T> allocate_on_device(std::size_t count) {
    return DeviceArray<T>(allocate_bytes_on_device(SharedArray<T>::bytes_of(count)));
  }
  DeviceMemory allocate_bytes_on_device(std::size_t bytes);
  /// Prepares calls on device memory of the program's own, all of an allocation or a piece of it, until the result is
  /// destroyed, which comes before the memory is freed. Not collective. What lies in a range that is registered shares
  /// its registration. Throws as allocate_on_device, and Error{invalid_argument} for memory that is not this GPU's, or
  /// not of one allocation, and for a range that overlaps a registered one otherwise.
  [[nodiscard]] DeviceMemory register_memory(void* data, std::size_t bytes);

  /// Fails every operation of this communicator, under way and to come, on every rank, with Error{aborted} and
  /// `reason`. Within a second on ranks that are in a call, on the others at their next call. From any thread.
  /// Between hosts over an MPI without MPI_THREAD_MULTIPLE the second begins when a rank of this host is next in a call
  /// or destroys the communicator: abort() itself may not call MPI.
  void abort(std::string_view reason) noexcept;

  /// Moves unfinished asynchronous operations on, without waiting.
  void progress();

  /// What a call would do, in words; with a stream in the options, what one on device memory would.
  std::string explain(Collective, std::size_t count, DataType, ReduceOp op = ReduceOp::sum, const Options& = {}) const;
  /// What a call would do.
  Plan plan(Collective, std::size_t count, DataType, ReduceOp op = ReduceOp::sum, const Options& = {}) const;

  /// Bytes that this rank has handed to transports and intra-host collectives since construction.
  std::uint64_t bytes_sent() const noexcept;
  /// Of these, payload of messages to other hosts.
  std::uint64_t bytes_sent_to_other_hosts() const noexcept;
  /// What coded messages have saved, and cost, since construction.
  CodingReport coding() const noexcept;

  /// The last 64 operations that have started, and those that are queued behind them, oldest first. For a rank that
  /// hangs, `collectives_info watch` and COLLECTIVES_FLIGHT_RECORDER show the same from outside.
  std::vector<OperationRecord> recent_operations() const;
  /// Calls, bytes and times of each collective since construction. Costs nothing worth mentioning.
  Counters counters() const;

 private:
  friend class Calibration;  // switches the tuning between calls
  friend class DeviceMemory;
  friend class Group;
  friend class Work;
  struct Impl;
  explicit Communicator(std::unique_ptr<Impl>) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// Fuses small all-reduces: tensors of equal type, op and options are packed into one buffer, reduced by one call and
/// unpacked. Every rank adds the same tensors in the same order. Reusable after run().
///
///   Group group = comm.group();
///   for (auto& tensor : gradients) group.all_reduce(tensor, tensor, ReduceOp::average);
///   group.run();
class COLLECTIVES_EXPORT Group {
 public:
  explicit Group(Communicator& comm);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();
  /// Adds a tensor. Checked as Communicator::all_reduce; the buffers stay the caller's until run() or Work::wait().
  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum, const Options& = {});
  /// Performs everything added, and empties the group.
  void run();
  /// As run(), without waiting. The Work owns what was added.
  [[nodiscard]] Work run_async();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace collectives
