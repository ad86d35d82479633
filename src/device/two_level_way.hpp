// An all-reduce on several hosts whose GPUs reach one another inside each: what `hierarchical` does, with the GPUs at
// its ends. The GPUs of a host add, each a slice of the vector, read from all of them; a slice comes to the host by
// pinned memory and is all-reduced along its rail, as the plan says; it goes back, and from there to all GPUs of the
// host. So a rank moves its slice over its bus, once there and once back, and the host adds nothing that the hosts'
// sums are not.
//
// A slice of every buffer is read, and written, by its owner only; so in place nobody's contribution is lost, and it is
// enough to meet before the first and behind the last of it.
//
// All ranks have the same bits. They are those of `hierarchical` on the host, unless that is a ring of three hosts or
// more in several rounds: there pieces of floats may lie at other hosts, and are added in another order.
#pragma once

#include <vector>

#include "device/in_host.hpp"
#include "device/room.hpp"
#include "executor.hpp"

namespace collectives {

class Seat;

class TwoLevelWay final : public InHostWay {
 public:
  TwoLevelWay(Device& device, const Arena& arena, const Seat& seat, const Topology& topology);
  ~TwoLevelWay() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;

 private:
  enum class Phase : std::uint8_t { coming, copying_there, meeting, adding, along_the_rail, giving, leaving };

  Turn wait_for(Turn whom, Phase phase);
  Turn go_on();
  void add();
  void describe_rail();
  void give_slice();
  std::size_t bytes() const { return slice_.count * task_.element; }
  /// Lies as the slice does in this rank's buffer, so that kernels take both by vectors.
  std::byte* sum() const noexcept { return sum_.as<std::byte>(sum_at_); }

  const Seat& seat_;
  const Topology& topology_;
  DeviceRoom sum_, sum_here_;  // of this rank's slice: on the GPU, and pinned
  Job* job_ = nullptr;
  const Plan* plan_ = nullptr;
  Plan rail_plan_;
  ReduceOp op_;
  DataType type_ = DataType::f32;
  Range slice_{};  // of this rank
  std::size_t sum_at_ = 0;
  Phase phase_ = Phase::coming;
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;
};

}  // namespace collectives
