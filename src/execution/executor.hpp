// The executor performs Steps. Duties that all algorithms share (segments, scratch, tags, counting) live here and
// nowhere else; waiting, deadlines and failures belong to its caller, because the executor never waits: progress() goes
// as far as it can.
//
// An operation is a sequence of moves, one per Step and round, in the order of the schedule. A move waits until
// everything it takes has arrived and everything it hands out has a frame to go into; then it acts at once. Reductions
// write straight into the outgoing frame or the caller's output, whichever comes first, and read arrived messages in
// place; what is handed on unchanged goes out of the caller's memory and comes into it, where the transport can do
// that.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/transport.hpp"
#include "compression/coding.hpp"
#include "execution/job.hpp"
#include "monitoring/trace.hpp"
#include "shared_memory/host_collective.hpp"
#include "steps/algorithm.hpp"
#include "steps/schedule.hpp"
#include "steps/step.hpp"

namespace collectives {

class Executor {
 public:
  /// `transports[r]` carries messages to rank r and knows it as `address[r]`.
  struct Route {
    Transport* transport = nullptr;
    Rank address = 0;
  };
  /// Intra-host collectives by Subgroup; those of domain and rail only where the seat has an inner grid.
  using HostCollectives = std::array<std::unique_ptr<HostCollective>, 3>;
  /// `wire`: the transport among them that needs calls to move on and lends memory, as that between hosts, or null.
  /// `engine`: what works on values where transports carry addresses of its memory, and performs host Steps, then all
  /// of them among the ranks of the host; messages are not coded. Null: this thread and the stages do.
  Executor(const RankView& view, std::vector<Route> routes, HostCollectives collectives_of_hosts,
           Transport* wire = nullptr, ValueEngine* engine = nullptr);

  /// Tells `trace`, if there is one, what operations are doing.
  void observe(Trace* trace) noexcept { trace_ = trace; }

  /// Begins an operation. `job` stays as it is until it is finished, or another one begins.
  void start(const Job& job) {
    job_ = &job;
    waits_for_input_ = waits_for_wire_ = false;
    job.single_step != nullptr ? host_collective(Subgroup::host).start(job.single_step->task, job.host) : start_steps();
  }
  /// True when the operation is finished. Throws TagMismatch (peer as rank), Error.
  bool progress() {
    if (job_->single_step == nullptr) return progress_steps();
    if (trace_ != nullptr) trace_->phase(Trace::Phase::host_collective);
    if (!progress_host(Subgroup::host)) return false;
    ++moves_;
    return true;
  }
  /// Whether what progress() could not go on without comes, or goes, over the wire.
  bool waits_for_wire() const noexcept { return waits_for_wire_; }
  /// Or for the job's feed.
  bool waits_for_input() const noexcept { return waits_for_input_; }
  /// Changes whenever something has moved.
  std::uint64_t moves() const noexcept;
  /// Bytes handed to transports and intra-host collectives since construction.
  std::uint64_t bytes_sent() const noexcept;
  /// Of these, to other hosts.
  std::uint64_t bytes_to_other_hosts() const noexcept { return bytes_to_other_hosts_; }
  const CodingReport& coding() const noexcept { return coded_; }

 private:
  /// The Steps of one round, with their own copies of the peers.
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
  bool input_ready();
  void emit_round(std::size_t round, StepList&);
  void next_step();
  void begin_host(const Step&);
  bool ready(const Step&);
  void keep_as_work(Range);
  bool performed(const Step&);
  /// What becomes of a Step's value: where it lies, and whether peers may read it there as long as they like.
  struct Made {
    const std::byte* value = nullptr;
    const std::byte* lent = nullptr;
  };
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
  /// Visits elements [0, count) as (first, elements) of at most a tile.
  template <class Visit>
  void for_each_tile(std::size_t count, Visit&& visit) const;
  /// The frame of the first peer that `step` hands its value to; null if there is none.
  std::byte* first_frame(const Step&);
  /// Hands `value` on, which may lie in the first frame already, and lets go of what was taken.
  void hand_on(const Step&, const std::byte* value, const std::byte* lent);
  std::byte* address(Place, Range);
  bool over_wire(Rank peer) const {
    return routes_[static_cast<std::size_t>(peer)].transport == wire_ &&
           (engine_ == nullptr || !engine_->reads_in_place(peer));
  }
  bool me(Rank rank) const noexcept { return rank == view_.world.self; }
  const Message& taken(Rank from, std::size_t bytes);
  /// Where what `step` takes may come to straight away; null where nothing may.
  std::byte* receive_target(const Step& step);
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
  Coding coding_;  // of messages
  Schedule<StepList> schedule_;
  std::size_t from_ready_ = 0, to_ready_ = 0;
  bool host_begun_ = false, waits_for_wire_ = false, waits_for_input_ = false, receive_target_known_ = false;
  bool in_engine_ = false;               // the Step under way is
  Made made_;                            // there
  std::byte* receive_target_ = nullptr;  // of the Step under way
  HostTask host_task_;
  HostOperands host_operands_;
  std::vector<Source> sources_;
  std::vector<std::byte> work_;   // where the host keeps partial results
  std::byte* work_at_ = nullptr;  // the one that is kept
  std::size_t tile_ = 0;          // elements that are coded and added at a time
  CodingReport coded_;
  std::vector<float> decoded_;      // a tile of every source, and of their sum
  std::vector<float> aligned_;      // a tile whose place is not
  std::vector<std::byte> encoded_;  // a tile
  Range worked_;                    // of the vector, what lies at work_at_
  std::uint64_t moves_ = 0, bytes_sent_ = 0, bytes_to_other_hosts_ = 0;
};

}  // namespace collectives
