// PipelinedCopy: copies the vector of a call between a GPU and CPU memory while the CPU works on the vector.
//
// The CPU works in rounds. An algorithm divides the vector into one part per rank, or treats the whole vector as one
// part. In each round, the CPU performs all Steps, the actions of a rank, on one segment of each part.
//
// A round can begin as soon as its own input has been copied, while the input of later rounds is still being copied.
// The result of a round is copied to the GPU during later rounds. Three activities thus overlap: the copy to CPU
// memory, the work of CPU and network, and the copy back. A call on a long vector takes little longer than the slowest
// of these activities. The order of Steps and the bits of the result are those of a call on CPU memory.
//
// The executor performs the Steps. Before each Step, it asks this object whether the input of the round is ready. It
// also reports to this object which rounds are complete.
//
// Each copy has a start-up cost. The data of several rounds are therefore copied together. These data form a group. A
// group has one piece per part: a range of adjacent elements, which one copy moves. A group of a long vector has at
// least about 1 MiB, and a piece has at least about 128 KiB.
//
// Price: the executor asks before each Step whether the input is ready. Each group needs one copy per part in each
// direction. Only an all-reduce can use this class. Reason: its rounds use the same ranges on all ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "device/device.hpp"
#include "execution/executor.hpp"

namespace collectives {

class PipelinedCopy final : public InputStream {
 public:
  explicit PipelinedCopy(Device& device) : device_(device) {}
  ~PipelinedCopy() override;
  PipelinedCopy(const PipelinedCopy&) = delete;
  PipelinedCopy& operator=(const PipelinedCopy&) = delete;

  struct Endpoints {
    const std::byte* from = nullptr;  ///< Input on the GPU.
    std::byte* to = nullptr;          ///< Result on the GPU, which may equal `from`.
    std::byte* pinned = nullptr;      ///< Pinned CPU memory for the whole vector.
    Device::Stream to_host = nullptr, to_device = nullptr;
  };
  /// Starts the copies of `job`, an all-reduce. Addresses are those of element 0. The copies follow all earlier work in
  /// `to_host`.
  void start(const Job& job, const Endpoints& endpoints);

  bool ready(std::size_t round) override;
  void done(std::size_t rounds) override;

 private:
  template <class Copy>
  void for_each_piece(std::size_t group, Copy&& copy) const;
  void issue_ahead(std::size_t group);

  Device& device_;
  Endpoints endpoints_;
  Parts parts_;
  std::size_t element_ = 1, rounds_ = 0;
  // Size of a group: `group_segment_` elements of each part, from `group_rounds_` rounds. `groups_`: number of groups.
  std::size_t groups_ = 0, group_segment_ = 0, group_rounds_ = 1;
  // Numbers of groups. For `begun_` groups, the copy to CPU memory has started. For `ready_` groups, this copy has
  // ended. For `copied_back_` groups, the copy back has started.
  std::size_t begun_ = 0, ready_ = 0, copied_back_ = 0;
  std::vector<Device::Event> events_;  // Events of the groups in transit, used in turn.
};

}  // namespace collectives
