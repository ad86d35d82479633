// Inline: a short vector travels inside the cache lines that are polled.
//
// A line is 56 bytes of payload and a tag, written last; a line that shows the tag of this stage is complete, so one
// cache miss brings data and notice together, and lines that follow one another miss together. There is no second
// meeting: a slot is used again 64 stages later (see HostStage). Every rank combines what it needs for itself, in rank
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction.hpp"
#include "shared_memory/host_operands.hpp"
#include "shared_memory/host_task.hpp"
#include "shared_memory/stage_room.hpp"

namespace collectives {

class Lines {
 public:
  explicit Lines(const StageRoom&);
  /// Shows this rank's values. `number` counts stages and names the slot.
  void start(const HostTask&, const HostOperands&, std::uint64_t number);
  bool advance();
  std::uint64_t bytes_shown() const noexcept { return bytes_shown_; }

 private:
  struct Span {
    std::size_t begin = 0, end = 0;  // bytes of a payload
  };
  Span payload(int local) const;
  bool wants(int local) const;
  void write(Span);
  bool read(int local);
  void finish();
  std::byte* gathered(int local) { return gathered_.data() + static_cast<std::size_t>(local) * stride_; }

  const StageRoom& room_;
  const int self_, ranks_;
  const HostTask* task_ = nullptr;
  const HostOperands* with_ = nullptr;
  std::uint64_t number_ = 0, tag_ = 0;
  const std::byte* own_ = nullptr;  // own values, slices side by side
  std::size_t own_bytes_ = 0;
  Span mine_;  // of a payload: what this rank combines
  int reading_ = 0;
  std::size_t line_ = 0;
  std::size_t stride_;
  std::vector<std::byte> gathered_;  // payloads as they come in
  std::vector<Source> sources_;
  std::uint64_t bytes_shown_ = 0;
};

}  // namespace collectives
