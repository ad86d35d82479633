// An all-reduce on several hosts whose GPUs reach one another inside each: what `hierarchical` does, with the GPUs at
// its ends. The GPUs of a host add, each a slice of the vector, read from all of them; a slice comes to the host by
// pinned memory and is all-reduced along its rail, as the plan says; it goes back, and from there to all GPUs of the
// host. So a rank moves its slice over its bus, once there and once back, and the host adds nothing that the hosts'
// sums are not.
//
// The bits are those of `hierarchical` on the host: the same sums in the same order.
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
  enum class Phase : std::uint8_t {
    coming,
    copying_there,
    meeting,
    adding,
    along_the_rail,
    collecting,
    giving,
    leaving,
    copying_back
  };

  Turn wait_for(Turn whom, Phase phase);
  void add();
  void describe_rail();
  void give_slice();
  std::size_t bytes() const { return slice_.count * task_.element; }

  const Seat& seat_;
  const Topology& topology_;
  DeviceRoom sum_, sum_here_;  // of this rank's slice: on the GPU, and pinned
  Job* job_ = nullptr;
  const Plan* plan_ = nullptr;
  Plan rail_plan_;
  ReduceOp op_;
  DataType type_ = DataType::f32;
  Range slice_{};  // of this rank
  Phase phase_ = Phase::coming;
  std::vector<Source> sources_;
  std::vector<std::byte*> outs_;
};

}  // namespace collectives
