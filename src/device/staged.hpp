// The way that always works: copy to the host, perform the host's own plan there, copy back. So every backend, any
// number of hosts, codecs, top-k and ops that are functions of the host do for device memory what they do for the
// host's.
//
// The stage holds the whole vector, in place whatever the caller's buffers are, and comes from the memory that peers of
// this host map (memory.hpp): where all ranks stage, the host's plan copies nothing inside the host. It is pinned, and
// kept: it grows to the longest vector so far.
//
// An all-reduce in several rounds has its copies in step with them (copies_by_round.hpp). An operation that has ended
// in the caller's stream while its result is still on the way back needs no stage of its own: the next one begins when
// that has arrived.
#pragma once

#include "collectives/memory.hpp"
#include "device/copies_by_round.hpp"
#include "device/way.hpp"

namespace collectives {

class StagedWay final : public DeviceWay {
 public:
  StagedWay(Device& device, Rank rank) : device_(device), rank_(rank), by_round_(device) {}
  /// Waits a while for what is under way; a GPU that does not come to an end keeps the stage.
  ~StagedWay() override;

  void start(const DeviceCall& call, const PlannedCall& planned, Job& job) override;
  Turn advance() override;
  void abandon() noexcept override;
  std::uint64_t moves() const noexcept override { return moves_; }

 private:
  enum class Stage : std::uint8_t { make_room, copied_in, performed, copied_out };

  void make_room();
  bool copies_by_round() const noexcept;
  void copy_in();
  void copy_out();

  Device& device_;
  const Rank rank_;
  CopiesByRound by_round_;
  Device::Stream stream_ = nullptr, stream_back_ = nullptr;
  Device::Event there_ = nullptr, back_ = nullptr;  // the copies to the host, and from it
  SharedMemory memory_;
  const DeviceCall* call_ = nullptr;
  const PlannedCall* planned_ = nullptr;
  Job* job_ = nullptr;
  Stage stage_ = Stage::make_room;
  std::uint64_t moves_ = 0;
};

}  // namespace collectives
