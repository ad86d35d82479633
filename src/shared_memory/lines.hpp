// Inline: a short vector travels inside the cache lines that are polled.
//
// A line is 56 bytes of payload and a tag, written last; a line that shows the tag of this stage is complete, so one
// cache miss brings data and notice together, and lines that follow one another miss together. There is no second
// meeting: a slot is used again 64 stages later (see HostStage). Every rank combines what it needs for itself, in rank
// order.
//
// A stage of a few bytes is over as soon as the line has crossed, unless finding out what is to be done takes longer.
// So that is found out once for all stages alike; and a payload of one line is combined where it has come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reduction/reduction.hpp"
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
  /// What one of the others shows, as far as this rank wants it.
  struct Wanted {
    int local;
    std::size_t first, end;  // lines
    std::size_t bytes;       // where the payload ends
    std::byte* to;           // where it is to be; null: it may stay in its line
  };
  /// Bytes of this rank's own, and where they are to be.
  struct Own {
    const std::byte* from;
    std::byte* to;
    std::size_t bytes;
  };
  /// Elements that lie side by side in every payload and in the result.
  struct Piece {
    std::byte* to;
    std::size_t count, bytes;
  };

  void prepare(const HostTask&, const HostOperands&);
  Span combined(const HostTask&) const;
  void prepare_to_show(const HostTask&, const HostOperands&, Span mine);
  void prepare_to_combine(const HostTask&, const HostOperands&, Span mine);
  void write(Span);
  void ask_for(std::byte* next, Span) const;
  bool read(const Wanted&);
  void finish();
  std::byte* gathered(int local) { return gathered_.data() + static_cast<std::size_t>(local) * stride_; }

  std::size_t slot_of(std::uint64_t number) const;  ///< bytes from the beginning of a rank's ring
  std::byte* slot(int local) const { return slots_[static_cast<std::size_t>(local)] + slot_at_; }

  const int self_, ranks_;
  std::vector<std::byte*> slots_;  // by rank, the first of their rings
  std::size_t slot_bytes_;
  std::size_t stride_;
  bool populated_ = false;           // have the others' slots been
  std::vector<std::byte> gathered_;  // payloads of several lines as they come in

  // What prepare() has found out.
  std::uint64_t known_as_ = 0;
  bool shows_notice_ = false;  // and nothing else
  std::vector<Own> packed_;    // what the own payload is gathered from, where it is not all in one place
  const std::byte* own_ = nullptr;
  std::size_t own_bytes_ = 0;
  Span shown_[2];
  std::size_t shown_bytes_ = 0;
  std::vector<Wanted> wanted_;
  Own kept_{};                 // of the own payload, where it is not combined
  std::vector<Piece> pieces_;  // one after the other
  std::size_t pieces_at_ = 0;  // byte of a payload where the first begins
  Fold fold_;

  std::uint64_t tag_ = 0;
  std::size_t slot_at_ = 0;  // in every rank's ring
  std::size_t reading_ = 0, lines_read_ = 0;
  std::vector<Source> sources_;  // by rank: what of its payload goes into the first piece
  std::uint64_t bytes_shown_ = 0;
};

}  // namespace collectives
