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

class CopiesByRound final : public Feed {
 public:
  explicit CopiesByRound(Device& device) : device_(device) {}
  ~CopiesByRound() override;
  CopiesByRound(const CopiesByRound&) = delete;
  CopiesByRound& operator=(const CopiesByRound&) = delete;

  struct Ends {
    const std::byte* from = nullptr;  ///< on the GPU; the result goes to...
    std::byte* to = nullptr;          ///< ...this, which may be the same
    std::byte* here = nullptr;        ///< pinned, as long
    Device::Stream there = nullptr, back = nullptr;
  };
  /// The rounds of `job`, an all-reduce, from element 0 of its vector. What `there` holds comes before.
  void start(const Job& job, const Ends& ends);

  bool has_come(std::size_t round) override;
  void done(std::size_t rounds) override;

 private:
  template <class Copy>
  void for_each_piece(std::size_t group, Copy&& copy) const;
  void send_ahead(std::size_t group);

  Device& device_;
  Ends ends_;
  Parts parts_;
  std::size_t element_ = 1, rounds_ = 0;
  std::size_t groups_ = 0, group_segment_ = 0, group_rounds_ = 1;  // elements of a part, rounds
  std::size_t begun_ = 0, come_ = 0, gone_back_ = 0;               // groups
  std::vector<Device::Event> events_;                              // of groups that are on their way, in turns
};

}  // namespace collectives
