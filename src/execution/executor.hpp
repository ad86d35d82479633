// Executor: performs the Steps of one operation after another.
//
// The executor never waits. progress() performs Steps until the next one cannot run yet, then returns. Its caller
// waits, and watches deadlines, lost peers and failures. Blocking calls, test(), wait() and the progress thread
// therefore run the same code. The executor also handles what all algorithms share. That is segments, scratch memory,
// tags and byte counts.
//
// A rank performs its Steps in the fixed order of steps/schedule.hpp. A Step waits until its incoming messages have
// arrived and its outgoing messages have frames. A frame is memory of a transport for one message. The Step then runs
// at once.
//
// The executor avoids copies and scratch memory. A reduction writes its result into the destination. Without one, it
// writes into the first outgoing frame. Received messages are read in place. Values that are not combined need no
// frame. They are sent from the caller's memory and received into it, if the transport can do that.
//
// A ValueEngine replaces the processor if the values are in GPU memory. GPUs therefore need no algorithms of their own.
//
// Price: Steps are recorded in a list before they are performed. That takes some tens of nanoseconds per call. A Step
// waits if it overwrites memory that is still being sent. A call ends when the kernel has taken over all data. With an
// engine, the host acts between any two Steps. Messages are not coded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/transport.hpp"
#include "execution/job.hpp"
#include "monitoring/trace.hpp"
#include "planning/coding.hpp"
#include "shared_memory/host_collective.hpp"
#include "steps/algorithm.hpp"
#include "steps/schedule.hpp"
#include "steps/step.hpp"

namespace collectives {

class Executor {
 public:
  /// Transport of the messages to one rank, and that rank's number in the transport.
  struct Route {
    Transport* transport = nullptr;
    Rank address = 0;
  };
  /// Intra-host collectives, indexed by Subgroup. Those of `domain` and `rail` exist only if the rank view has an inner
  /// grid.
  using HostCollectives = std::array<std::unique_ptr<HostCollective>, 3>;
  /// `wire`: the transport of `routes` that needs calls of progress(), such as one between hosts. It may read memory
  /// after send_from() has returned. Null: no transport does.
  ///
  /// `engine`: works on values if messages are addresses of its memory. It also performs the host Steps. They then join
  /// all ranks of the host. Messages are not coded. Null: this thread works on values, and the intra-host collectives
  /// perform host Steps.
  Executor(const RankView& view, std::vector<Route> routes, HostCollectives host_collectives, Transport* wire = nullptr,
           ValueEngine* engine = nullptr);

  /// Sets the trace that records the phases of operations; null: none.
  void observe(Trace* trace) noexcept { trace_ = trace; }

  /// Starts an operation. `job` must stay unchanged until the operation ends.
  void start(const Job& job) {
    job_ = &job;
    waits_for_input_ = waits_for_wire_ = false;
    job.single_step != nullptr ? host_collective(Subgroup::host).start(job.single_step->task, job.host) : start_steps();
  }
  /// Performs Steps as far as possible without waiting. Returns true when the operation has finished. Throws Error, and
  /// TagMismatch, whose `peer` is a rank.
  bool progress() {
    if (job_->single_step == nullptr) return progress_steps();
    if (trace_ != nullptr) trace_->phase(Trace::Phase::host_collective);
    if (!progress_host(Subgroup::host)) return false;
    ++moves_;
    return true;
  }
  /// Returns whether the last progress() stopped at a message over the wire.
  bool waits_for_wire() const noexcept { return waits_for_wire_; }
  /// Returns whether the last progress() stopped at the job's input stream.
  bool waits_for_input() const noexcept { return waits_for_input_; }
  /// Returns a counter that changes whenever a Step or an intra-host collective progresses.
  std::uint64_t moves() const noexcept;
  /// Returns the bytes handed to transports and intra-host collectives since construction.
  std::uint64_t bytes_sent() const noexcept;
  /// Returns the bytes of bytes_sent() that went to other hosts.
  std::uint64_t bytes_to_other_hosts() const noexcept { return bytes_to_other_hosts_; }
  const CodingReport& coding() const noexcept { return coded_; }

 private:
  /// List of the Steps of one round. It copies their peers, whose spans end with emit().
  class StepList final : public StepSink {
   public:
    void operator()(const Step& step) override;
    void clear() noexcept;
    std::size_t size() const noexcept { return steps_.size(); }
    const Step& operator[](std::size_t i) const noexcept { return steps_[i]; }

   private:
    Peers store(Peers);
    static constexpr std::size_t kBlock = 1024;
    std::vector<Step> steps_;
    std::vector<std::vector<Rank>> blocks_;  // never reallocated while Steps point into them
    std::size_t block_ = 0;
  };

  void start_steps();
  bool progress_steps();
  bool progress_host(Subgroup subgroup) try {
    return host_collective(subgroup).progress();
  } catch (const TagMismatch& mismatch) {  // an intra-host collective counts local ranks
    throw TagMismatch{view_.grid.here()[static_cast<std::size_t>(mismatch.peer)]};
  }
  HostCollective& host_collective(Subgroup subgroup) const {
    return *host_collectives_[static_cast<std::size_t>(subgroup)];
  }
  /// Returns whether the job's input for the current round has arrived.
  bool input_ready();
  void emit_round(std::size_t round, StepList&);
  void next_step();
  /// Starts a host Step.
  void begin_host(const Step&);
  /// Returns whether a Step can run. Its messages have arrived, frames are free, and its destination is not being sent.
  bool ready(const Step&);
  void keep_as_work(Range);
  bool performed(const Step&);
  /// Result of a Step. `value`: its address. `lent`: the value in memory that peers may read in place, or null.
  struct Made {
    const std::byte* value = nullptr;
    const std::byte* lent = nullptr;
  };
  /// Computes the value of a Step, and stores it if the Step keeps it.
  Made make(const Step&);
  void copy_value(std::byte* to, const std::byte* from, std::size_t bytes);
  bool lends_to(Rank peer, const std::byte* lent) const {
    return lent != nullptr && (engine_ == nullptr || engine_->reads_in_place(peer));
  }
  void fill_frames(const Step&, const Made&);
  void perform(const Step&);
  void perform_coded(const Step&);
  void round_coded(const std::byte* values, std::byte* seen, std::byte* frame, std::size_t count);
  void add_coded(const Step&, std::byte* destination, std::byte* frame);
  void encode(const std::byte* values, std::size_t count, std::byte* wire);
  void decode(const std::byte* wire, std::byte* values, std::size_t count);
  /// Calls visit(first, elements) for consecutive tiles of the elements [0, count).
  template <class Visit>
  void for_each_tile(std::size_t count, Visit&& visit) const;
  /// Returns the frame of the first other rank in `step.to`; null if there is none.
  std::byte* first_frame(const Step&);
  /// Sends `value` to the ranks of `step.to`. It may lie in the first frame already. Releases the received messages.
  void hand_on(const Step&, const std::byte* value, const std::byte* lent);
  /// Returns the address of a range in a buffer; null for Place::nowhere.
  std::byte* address(Place, Range);
  bool over_wire(Rank peer) const {
    return routes_[static_cast<std::size_t>(peer)].transport == wire_ &&
           (engine_ == nullptr || !engine_->reads_in_place(peer));
  }
  bool me(Rank rank) const noexcept { return rank == view_.world.self; }
  /// Returns the message that has arrived from `from`. Throws TagMismatch if it belongs to another call.
  const Message& taken(Rank from, std::size_t bytes);
  /// Returns the memory into which the message of `step` may be received; null if it stays in its frame.
  std::byte* receive_target(const Step& step);
  /// Returns whether the wire still uses any of these bytes.
  bool sent_from(const std::byte* place, std::size_t bytes) const;
  bool sends_drained();
  void trace(const Step&);

  const RankView& view_;
  std::vector<Route> routes_;
  HostCollectives host_collectives_;
  Transport* wire_;
  ValueEngine* engine_;
  Trace* trace_ = nullptr;

  const Job* job_ = nullptr;
  Coding coding_;  // encoding of messages
  Schedule<StepList> schedule_;
  std::size_t from_ready_ = 0, to_ready_ = 0;
  bool host_begun_ = false, waits_for_wire_ = false, waits_for_input_ = false, receive_target_known_ = false;
  bool in_engine_ = false;               // whether `engine_` is performing the current Step
  Made made_;                            // result of that Step
  std::byte* receive_target_ = nullptr;  // receive target of the current Step
  HostTask host_task_;
  HostOperands host_operands_;
  std::vector<Source> sources_;
  std::vector<std::byte> work_;   // partial results (Place::work), if there is no engine
  std::byte* work_at_ = nullptr;  // address of the current partial result
  std::size_t tile_ = 0;          // number of elements that are coded and added at a time
  CodingReport coded_;
  std::vector<float> decoded_;      // one tile of each source, and one of their sum
  std::vector<float> aligned_;      // one tile, for values whose memory is not aligned for float
  std::vector<std::byte> encoded_;  // one encoded tile
  Range worked_;                    // range of the vector that `work_at_` holds
  std::uint64_t moves_ = 0, bytes_sent_ = 0, bytes_to_other_hosts_ = 0;
};

}  // namespace collectives
