// Copies between a GPU and the host in step with the rounds of a plan (schedule.hpp): a round begins when its input has
// come, while that of later ones is on its way, and what it has made goes back while later ones are performed. So a
// long vector takes as long as the slowest of the three, the bus there, the hosts, the bus back, and a little for the
// first round and the last.
//
// Rounds are copied in groups, of which each part of the vector has one piece; a group is a mebibyte or more, and no
// piece is short, for a copy takes its time to begin.
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
    const std::byte* from = nullptr;  ///< on the GPU; the result goes to...
    std::byte* to = nullptr;          ///< ...this, which may be the same
    std::byte* pinned = nullptr;      ///< pinned, as long
    Device::Stream to_host = nullptr, to_device = nullptr;
  };
  /// The rounds of `job`, an all-reduce, from element 0 of its vector. What `there` holds comes before.
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
  std::size_t groups_ = 0, group_segment_ = 0, group_rounds_ = 1;  // elements of a part, rounds
  std::size_t begun_ = 0, ready_ = 0, copied_back_ = 0;            // groups
  std::vector<Device::Event> events_;                              // of groups that are on their way, in turns
};

}  // namespace collectives
