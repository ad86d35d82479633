// NCCL's communicator with our manners: no call of it waits without a deadline, and what goes wrong is an Error.
//
// NCCL is told not to block. What it then calls "in progress" is asked after until it is done, the deadline has passed
// or someone calls stop(); then the communicator is aborted, which is what gets NCCL's kernels off the device.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "collectives/deadline.hpp"
#include "collectives/types.hpp"
#include "nccl/library.hpp"

namespace collectives::nccl {

/// What NCCL's own reductions do not promise as ReduceOp does, in words that say what to do; empty for what they do:
/// sums, products and pre-scaled sums of f32, f64 and integers, averages of f32 and f64, min and max of integers.
std::string why_not_by_nccl(const ReduceOp& op, DataType type, bool deterministic);

ncclDataType_t type_of(DataType type);

class Communicator {
 public:
  /// What rank 0 makes and all others are told.
  static ncclUniqueId new_id(const Library& library);

  /// Meets the others on the current device. Throws Error{timeout, system}.
  Communicator(const Library& library, int size, const ncclUniqueId& id, Rank rank, Deadline deadline);
  /// Of those with the same color; empty for a negative one. Collective. Throws as the constructor does.
  std::unique_ptr<Communicator> split(int color, int key, Deadline deadline);
  /// Gives up what is unfinished.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// One collective, into `stream`; buffers are the device's. `count`: elements, of one rank's part for all_gather and
  /// reduce_scatter. Returns when it is in the stream. Throws Error{timeout, system, aborted}, and is of no use then.
  struct Call {
    Collective collective;
    const void* input;
    void* output;
    std::size_t count;
    DataType type;
    ReduceOp op;
    Rank root = 0;
    void* stream = nullptr;
  };
  void start(const Call& call, const std::string& what, Deadline deadline);
  /// What goes out to and comes in from each rank, at once: `count` elements of every rank r, r * count behind the
  /// first.
  void all_to_all(const void* input, void* output, std::size_t count, DataType type, void* stream,
                  const std::string& what, Deadline deadline);

  /// What has gone wrong since it was put into a stream. Throws Error{system}.
  void look(const std::string& what);
  /// Ends what is under way, here; from any thread. Calls throw Error{aborted} from then on.
  void stop() noexcept { stopped_ = true; }

  /// Memory that collectives reach without copying; to be given back before the communicator goes.
  void* register_memory(void* memory, std::size_t bytes);
  void deregister_memory(void* handle);

 private:
  Communicator(const Library& library, ncclComm_t comm) : library_(library), comm_(comm) {}
  /// Waits until NCCL has done what it began with `result`.
  void finish(ncclResult_t result, const std::string& what, Deadline deadline);
  void check_usable(const std::string& what) const;
  ncclResult_t state() const;
  void give_up() noexcept;
  /// `calls` inside of ncclGroupStart() and End().
  template <class Calls>
  void grouped(const std::string& what, Deadline deadline, Calls&& calls);

  const Library& library_;
  ncclComm_t comm_ = nullptr;
  int size_ = 0;
  std::atomic<bool> stopped_ = false;
};

}  // namespace collectives::nccl
