// PointToPointCalls: checks and performs the point-to-point calls of a communicator. It owns the objects of
// asynchronous point-to-point calls.
//
// Communicator::Impl owns the object. Only one thread at a time may be in a point-to-point call, but another thread may
// perform a collective at the same time. If a second thread makes a point-to-point call, the call throws an error
// (one_call.hpp). Callers hold no lock.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/deadline.hpp"
#include "communicator/communicator_resources.hpp"
#include "communicator/one_call.hpp"
#include "communicator/operation.hpp"
#include "communicator/operation_pool.hpp"
#include "point_to_point/point_to_point.hpp"

namespace collectives {

class PointToPointCalls {
 public:
  using States = std::vector<std::shared_ptr<Work::State>>;
  using Operations = PointToPoint::Operations;

  /// `owner`: the communicator. Its progress thread may be constructed after this object.
  PointToPointCalls(Communicator::Impl& owner, const CommunicatorResources& resources);

  PointToPoint& engine() noexcept { return engine_; }
  const PointToPoint& engine() const noexcept { return engine_; }

  /// Sends or receives, and blocks until the call has ended. Returns the sender. Throws Error.
  Rank run(const MessageCall& call, const Options& options);
  /// Sends and receives at the same time. Blocks until both have ended. Returns the rank that has sent. Throws Error.
  Rank exchange(const MessageCall& send, const MessageCall& receive, const Options& options);
  /// Starts a send or a receive. Throws Error.
  Work issue(const MessageCall& call, const Options& options);
  /// Starts a send and a receive together. The result ends when both have ended. Throws Error.
  Work issue_exchange(const MessageCall& send, const MessageCall& receive, const Options& options);
  /// Checks a call that start_group() will start. Throws Error{invalid_argument} or Error{unsupported}.
  CheckedMessage check(const MessageCall& call, const Options& options) const;
  /// Checks a send and a receive of one call, whose buffers must not overlap. Throws as check() does.
  std::array<CheckedMessage, 2> check_exchange(const MessageCall& send, const MessageCall& receive,
                                               const Options& options) const;
  /// Starts the checked calls of a group together, and returns their states in the order of the calls. The result is
  /// valid until the next call; the caller moves the states out of it. Receives start before sends, so that fewer
  /// messages have to be stored. Otherwise the calls start in their order. Throws Error.
  States& start_group(std::span<const CheckedMessage> calls);
  /// Starts checked calls together. operations[i] performs calls[i], and must stay in place until it has ended. `name`:
  /// name of the calls, for errors. Throws Error, and has started nothing then.
  void start(std::string_view name, std::span<const CheckedMessage> calls, Operations operations);

  /// Blocks until all operations have ended or `until` has passed. Returns whether they have ended.
  bool wait_until(Operations operations, Deadline until);
  /// Progresses messages without waiting. Returns whether all operations have ended.
  bool test(Operations operations);
  /// Blocks until a call has ended or `until` has passed. Returns whether it has ended.
  bool wait_until(Work::State& state, Deadline until);
  /// Progresses messages without waiting. Returns whether a call has ended.
  bool test(Work::State& state);
  /// Ends all calls before the communicator ends. Their states no longer refer to the communicator.
  void end() noexcept;

 private:
  [[noreturn]] void refuse(Errc code, const MessageCall& call, std::string_view why) const;
  void check_options(const MessageCall& call, const Options& options) const;
  void check_memory(const MessageCall& call) const;
  /// Starts checked calls as start_group() does.
  States& start_together(std::span<const CheckedMessage> calls);
  /// Returns an unused state for a call.
  std::shared_ptr<Work::State> state_for(const CheckedMessage& call);

  Communicator::Impl& owner_;
  OneCall one_call_{"point-to-point call"};
  const CommunicatorResources& resources_;
  PointToPoint engine_;
  OperationPool<Work::State> pool_;
  States started_;                           // result of start_together()
  std::vector<MessageOperation*> starting_;  // operations of start_together(); kept for its memory
};

}  // namespace collectives
