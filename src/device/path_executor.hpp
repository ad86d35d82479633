// Ways of performing an operation on device memory. A communicator has one object of each way; the plan says which one
// an operation takes (Way, in plan.hpp). What all ways have in common is not theirs: the operation is at the head of
// the queue when it starts, its arrival record is published, and whoever waits for it looks for mismatches, lost peers
// and the deadline.
//
// A way never waits: progress() goes as far as it can. The GPU is asked by events how far it is.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include "core/call.hpp"
#include "device/device.hpp"

namespace collectives {

struct PlannedCall;
struct Job;
class Executor;
class SparseTensor;

/// An operation on device memory, from its call to its end. Kept with the operation's state, and used again.
struct DeviceCall {
  Call call;                    ///< without what lies in the caller's frame: counts and tensors
  std::vector<Tensor> tensors;  ///< Call::tensors
  std::size_t mine = 0;         ///< element of the vector at which this rank's part begins, where it has one
  std::optional<Device::Stream> stream;
  /// Reached when what `stream` held at the call is done; only with a stream.
  Device::Event ready = nullptr;
  /// The caller waits for the operation to return, so with a stream its end is the stream's to see.
  bool ends_in_stream = false;
  SparseTensor* tensor = nullptr;  ///< of a call with a compressor
  std::exception_ptr refused;      ///< what the GPU has refused at the call: the operation fails with it when it starts
  bool started = false;            ///< by its way
  bool in_host = false;            ///< the host's plan is being performed
  bool with_gpu = false;           ///< this rank waits for its GPU
  bool in_flight = false;          ///< all of it is in streams
};

class PathExecutor {
 public:
  enum class PathState : std::uint8_t {
    gpu,        ///< waits for this rank's GPU: to be called again
    peers,      ///< waits for other ranks: likewise
    host,       ///< the job is to be performed as one on memory of the host, then to be called again
    in_flight,  ///< all of it is in streams, where it goes on while others begin; then retire_oldest() tells of it
    done
  };

  virtual ~PathExecutor() = default;
  /// Whether the operation would take memory, which may wait for the GPU: then nothing may be in flight when it starts.
  virtual bool takes_memory(const DeviceCall&, const PlannedCall&) noexcept { return true; }
  /// Begins an operation. `call` and `planned` stay until it is done or abandoned. `job` describes it, with addresses
  /// on the device and its tag; where the way asks for Turn::host, it has put others there by then.
  virtual void start(const DeviceCall& call, const PlannedCall& planned, Job& job) = 0;
  /// Throws what the GPU refuses, what peers do wrong (TagMismatch), and that they are lost (Error).
  virtual PathState progress() = 0;
  /// Whether the oldest operation that is in flight has come to its end; if so, the next one is the oldest. Throws as
  /// progress() does.
  virtual bool retire_oldest() { return true; }
  /// The operation has failed, here or elsewhere. What the GPU holds of it is performed all the same; called before
  /// this rank waits for the others to let go of its buffers, so that it has let go of theirs.
  virtual void abandon() noexcept = 0;
  /// What performs Steps for this way alone; null: nothing does.
  virtual Executor* executor() noexcept { return nullptr; }
  /// Changes whenever something has moved.
  virtual std::uint64_t moves() const noexcept = 0;
};

}  // namespace collectives
