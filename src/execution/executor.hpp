// Executor: performs the work of one rank in a collective call.
//
// An algorithm describes this work as a list of Steps. A Step takes values of this rank or of peers. It may reduce the
// values, and may store and send the result. The executor performs the Steps in a fixed order (steps/schedule.hpp). A
// frame is memory of a transport for one message. A Step with messages can run only when all incoming messages have
// arrived, and the transport has a frame for each outgoing message.
//
// The executor never waits. The function progress() performs Steps until the next Step cannot run yet, and then
// returns. The caller of progress() calls it again later. Between two calls, it looks for passed deadlines, lost peers
// and failures. Blocking calls, test(), wait() and the progress thread can therefore all use the executor.
//
// The executor also does work that all algorithms need. It cuts long vectors into segments, and provides scratch
// memory. It checks the tags of received messages, and counts the bytes of messages.
//
// The executor avoids copies and scratch memory. A reduction writes its result into the destination of its Step. If the
// Step has no destination, the reduction writes into the first outgoing frame. Received messages are read in place.
// Values that are not reduced need no frame if the transport can send from the caller's memory and receive into it.
//
// The executor does not touch values itself: a ValueEngine copies and reduces them. HostEngine is the engine for host
// memory. The GPU code has engines for GPU memory. Algorithms therefore work for both kinds of memory. CodedStep
// performs Steps whose messages a codec encodes to fewer bytes.
//
// Price: Steps are recorded in a list before they are performed, which takes some tens of nanoseconds per call. If the
// transport between hosts still sends from memory that a Step would overwrite, the Step waits. An operation ends only
// when the transport can deliver all its messages without further calls of this process. With an engine for GPU memory,
// the CPU starts each Step after the GPU has finished the previous Step, and messages are not encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/transport.hpp"
#include "execution/coded_step.hpp"
#include "execution/host_engine.hpp"
#include "execution/job.hpp"
#include "execution/step_list.hpp"
#include "execution/step_messages.hpp"
#include "execution/value_engine.hpp"
#include "execution/value_places.hpp"
#include "monitoring/trace.hpp"
#include "planning/coding.hpp"
#include "steps/algorithm.hpp"
#include "steps/schedule.hpp"
#include "steps/step.hpp"

namespace collectives {

class Executor {
 public:
  using Route = StepMessages::Route;
  using HostCollectives = HostEngine::HostCollectives;
  /// `routes`: the transport to each peer. `wire`: the only transport in `routes` that needs calls of progress(). It is
  /// the wire between hosts, or GpuMessages. It may read memory after send_from() has returned. Null: there is none.
  ///
  /// `engine`: works on values in GPU memory. With an engine, messages inside the host hold addresses of values, and no
  /// message is encoded. The engine also performs host Steps, in which ranks of the host work together. Null: the
  /// values are in host memory, and a HostEngine with `host_collectives` works on them.
  Executor(const RankView& view, std::vector<Route> routes, HostCollectives host_collectives, Transport* wire = nullptr,
           ValueEngine* engine = nullptr);
  Executor(const Executor&) = delete;  // members refer to one another
  Executor& operator=(const Executor&) = delete;

  /// Sets the trace, which records the kind of work that an operation does at each time; null: none.
  void observe(Trace* trace) noexcept { trace_ = trace; }

  /// Starts the operation that `job` describes. The job must stay unchanged until the operation ends.
  void start(const Job& job) {
    job_ = &job;
    waits_for_input_ = false;
    messages_.set_waits_for_wire(false);
    job.single_step != nullptr ? host_engine_.start(job.single_step->task, job.host) : start_steps();
  }
  /// Performs Steps as far as possible without waiting. Returns true when the operation has finished. Throws Error, and
  /// TagMismatch, whose `peer` is a rank of the communicator.
  bool progress() {
    if (job_->single_step == nullptr) return progress_steps();
    if (trace_ != nullptr) trace_->phase(Trace::Phase::host_collective);
    if (!host_engine_.progress(Subgroup::host)) return false;
    ++moves_;
    return true;
  }
  /// Returns whether the job is one intra-host collective that waits for a root on another core (HostCollective).
  bool waits_for_other_core() const noexcept {
    return job_->single_step != nullptr && host_engine_.waits_for_other_core(Subgroup::host);
  }
  /// Returns whether the last progress() stopped because of a message to or from another host.
  bool waits_for_wire() const noexcept { return messages_.waits_for_wire(); }
  /// Returns whether the last progress() stopped at the job's input stream.
  bool waits_for_input() const noexcept { return waits_for_input_; }
  /// Returns a counter that changes whenever a Step or an intra-host collective progresses.
  std::uint64_t moves() const noexcept { return moves_ + host_engine_.moves(); }
  /// Returns the bytes handed to transports and intra-host collectives since construction.
  std::uint64_t bytes_sent() const noexcept { return messages_.bytes_sent() + host_engine_.bytes_shown(); }
  /// Returns the bytes of bytes_sent() that went to other hosts.
  std::uint64_t bytes_to_other_hosts() const noexcept { return messages_.bytes_to_other_hosts(); }
  const CodingReport& coding() const noexcept { return coded_step_.report(); }

 private:
  /// Calls act() with the engine. The functions of HostEngine are inline there, because its class is final.
  template <class Act>
  decltype(auto) on_engine(Act&& act) {
    return engine_ == nullptr ? act(host_engine_) : act(*engine_);
  }

  void start_steps();
  bool progress_steps();
  /// Returns whether the job's input for the current round has arrived.
  bool input_ready();
  void emit_round(std::size_t round, StepList&);
  void next_step();
  /// Starts a host Step.
  void begin_host(const Step&);
  /// Returns whether a Step can run. This requires that its messages have arrived, that frames are free, and that no
  /// transport still sends from its destination.
  bool ready(const Step&);
  /// Performs a Step. Returns false if it cannot begin yet, or if the engine has not finished it.
  template <class Engine>
  bool performed(const Step&, Engine&);
  /// Result of a Step. `value`: its address. `lent`: the value in memory that peers may read in place, or null.
  struct Made {
    const std::byte* value = nullptr;
    const std::byte* lent = nullptr;
  };
  /// Computes the value of a Step. Stores it if the Step keeps it.
  template <class Engine>
  Made make(const Step&, Engine&);
  /// Sends the values of all ranks in `step.from` as one message. Requires an engine for host memory.
  void join(const Step&);
  /// Divides the received message among the ranks in `step.to`. Requires an engine for host memory.
  void divide(const Step&);
  /// Returns the number of ranks whose contributions are in the final result of `step`; 0: its result is partial.
  int finish_ranks(const Step&) const;
  /// Returns the memory into which the message of `step` may be received; null if it stays in its frame.
  std::byte* receive_target(const Step& step) const;
  void trace(const Step&);

  const RankView& view_;
  HostEngine host_engine_;
  ValueEngine* const engine_;  // null: host_engine_
  Trace* trace_ = nullptr;

  const Job* job_ = nullptr;
  Coding coding_;  // encoding of messages
  Schedule<StepList> schedule_;
  StepMessages messages_;
  ValuePlaces places_;
  CodedStep coded_step_;
  bool host_begun_ = false, waits_for_input_ = false, receive_target_known_ = false;
  bool in_engine_ = false;               // whether the engine is performing the current Step
  const std::byte* lent_ = nullptr;      // Made::lent of the current Step, while the engine performs it
  std::byte* receive_target_ = nullptr;  // receive target of the current Step
  HostOperands host_operands_;
  std::vector<Source> sources_;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
