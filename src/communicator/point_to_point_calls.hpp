// PointToPointCalls: checks the point-to-point calls of a communicator, and owns the objects that perform them.
//
// Communicator::Impl owns the object. Its functions need no lock of the caller. They are for one thread at a time,
// which may be another one than that of the collectives.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "communicator/communicator_resources.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_pool.hpp"
#include "communicator/operation_queue.hpp"
#include "point_to_point/point_to_point.hpp"

namespace collectives {

class PointToPointCalls {
 public:
  PointToPointCalls(const CommunicatorResources& resources, OperationQueue& queue);

  PointToPoint& engine() noexcept { return engine_; }
  const PointToPoint& engine() const noexcept { return engine_; }
  /// Checks a call. Throws Error{invalid_argument} or Error{unsupported}, before anything is sent.
  CheckedMessage check(const MessageCall& call, const Options& options) const;
  /// Checks that the buffers of a send and a receive do not overlap. Throws Error{invalid_argument}.
  void check_apart(const MessageCall& send, const MessageCall& receive) const;
  /// Starts calls together, and returns their states. Receives start before sends, so that fewer messages have to be
  /// stored. Otherwise the calls start in their order. `owner`: the communicator.
  void start(Communicator::Impl& owner, std::span<const CheckedMessage> calls,
             std::vector<std::shared_ptr<Work::State>>& states);
  /// Returns an unused state without an operation, which is finished.
  std::shared_ptr<Work::State> unused();
  /// Ends all calls before the communicator ends. Their states no longer refer to the communicator.
  void end() noexcept;

 private:
  [[noreturn]] void refuse(Errc code, const MessageCall& call, std::string_view why) const;
  void check_options(const MessageCall& call, const Options& options) const;
  void check_memory(const MessageCall& call) const;

  const CommunicatorResources& resources_;
  PointToPoint engine_;
  OperationPool<Work::State> pool_;
  std::vector<MessageOperation*> starting_;  // operations of start(); kept for its memory
};

}  // namespace collectives
