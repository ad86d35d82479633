#include "shared_memory/host_stage.hpp"

#include <atomic>
#include <cstring>

namespace collectives {
namespace {

constexpr std::size_t kWordsPerLine = kLinePayload / sizeof(std::uint64_t);

/// The words of one line. Payload words are atomic too: a reader may look while the writer is at work.
std::atomic_ref<std::uint64_t> word(std::byte* line, std::size_t index) {
  return std::atomic_ref<std::uint64_t>(reinterpret_cast<std::uint64_t*>(line)[index]);
}

constexpr std::size_t lines_for(std::size_t bytes) {
  return bytes == 0 ? 1 : (bytes + kLinePayload - 1) / kLinePayload;  // an empty payload still says "I am here"
}

}  // namespace

HostStage::HostStage(const Arena& arena)
    : arena_(arena),
      self_(arena.self()),
      ranks_(arena.ranks()),
      payloads_(static_cast<std::size_t>(arena.ranks()) * lines_for(arena.shape().inline_bytes) * kLinePayload),
      sources_(static_cast<std::size_t>(arena.ranks())) {}

Range HostStage::slice(int local) const {
  if (only_ >= 0) return local == only_ ? parts_[0] : Range{};
  return static_cast<std::size_t>(local) < which_.size() ? parts_[which_[static_cast<std::size_t>(local)]] : Range{};
}

Range HostStage::slice(int local, std::uint64_t chunk) const {
  const Range all = slice(local);
  const std::size_t skipped = std::min<std::size_t>(all.count, segment_ * chunk);
  return {all.first + skipped, std::min(segment_, all.count - skipped)};
}

void HostStage::start(const Step& step, const HostOperands& with) {
  kind_ = step.kind;
  parts_ = step.parts;
  which_ = step.which;
  only_ = step.only;
  with_ = with;
  element_ = size_of(with.type);

  std::size_t longest = 0, total = 0;
  for (int local = 0; local < ranks_; ++local) {
    const std::size_t count = slice(local).count;
    longest = std::max(longest, count);
    total += count;
  }
  payload_bytes_ = (kind_ == Step::Kind::host_all_gather ? longest : total) * element_;
  inline_ = kind_ == Step::Kind::host_barrier || (only_ < 0 && payload_bytes_ <= arena_.shape().inline_bytes);
  if (inline_) {
    // One call may have several stages: lines are numbered by stage, so that none is taken for an earlier one's.
    with_.tag = renumbered(with_.tag, ++slot_);
    write_lines(slot_);
    reading_ = 0;
    line_ = 0;
    return;
  }
  // Gathered slices have a chunk each to themselves; combined ones share it, one place per owner.
  const std::size_t room = arena_.shape().chunk_bytes / element_;
  segment_ = std::max<std::size_t>(1, combines() && only_ < 0 ? room / static_cast<std::size_t>(ranks_) : room);
  chunks_ = (longest + segment_ - 1) / segment_;
  turn_ = 0;
  phase_ = 0;
  peer_ = 0;
}

bool HostStage::advance() { return inline_ ? advance_inline() : advance_staged(); }

// ---- inline ----

void HostStage::write_lines(std::uint64_t slot) {
  std::byte* line = arena_.lines(self_, slot);
  // The payload: all slices for a reduction, mine for a gather, nothing for a barrier. Slices lie side by side.
  std::byte* packed = payloads_.data() + static_cast<std::size_t>(self_) * payload_bytes_;
  std::size_t bytes = 0;
  if (kind_ != Step::Kind::host_barrier) {
    const bool mine_only = kind_ == Step::Kind::host_all_gather;
    for (int local = 0; local < ranks_; ++local) {
      if (mine_only && local != self_) continue;
      const Range range = slice(local);
      if (range.count == 0) continue;
      std::memcpy(packed + bytes, with_.own + range.first * element_, range.count * element_);
      bytes += range.count * element_;
    }
  }
  for (std::size_t at = 0, lines = lines_for(bytes); lines > 0; --lines, line += kLineBytes) {
    std::uint64_t payload[kWordsPerLine] = {};
    const std::size_t here = std::min(kLinePayload, bytes - at);
    if (here > 0) std::memcpy(payload, packed + at, here);
    for (std::size_t w = 0; w * sizeof(std::uint64_t) < here; ++w)
      word(line, w).store(payload[w], std::memory_order_relaxed);
    word(line, kWordsPerLine).store(with_.tag, std::memory_order_release);
    at += here;
  }
  bytes_staged_ += bytes;
}

bool HostStage::read_lines(int local) {
  const std::size_t bytes = kind_ == Step::Kind::host_barrier      ? 0
                            : kind_ == Step::Kind::host_all_gather ? slice(local).count * element_
                                                                   : payload_bytes_;
  const std::size_t lines = lines_for(bytes);
  std::byte* from = arena_.lines(local, slot_);
  std::byte* to = payloads_.data() + static_cast<std::size_t>(local) * payload_bytes_;
  for (; line_ < lines; ++line_) {
    std::byte* line = from + line_ * kLineBytes;
    const std::uint64_t tag = word(line, kWordsPerLine).load(std::memory_order_acquire);
    if (tag != with_.tag) {
      if (number_of(tag) == number_of(with_.tag)) throw TagMismatch{local};
      return false;
    }
    const std::size_t at = line_ * kLinePayload, here = std::min(kLinePayload, bytes - at);
    std::uint64_t payload[kWordsPerLine];
    for (std::size_t w = 0; w * sizeof(std::uint64_t) < here; ++w)
      payload[w] = word(line, w).load(std::memory_order_relaxed);
    if (here > 0) std::memcpy(to + at, payload, here);
  }
  line_ = 0;
  return true;
}

bool HostStage::advance_inline() {
  for (; reading_ < ranks_; ++reading_)
    if (reading_ != self_ && !read_lines(reading_)) return false;
  finish_inline();
  return true;
}

void HostStage::finish_inline() {
  if (kind_ == Step::Kind::host_barrier) return;
  if (kind_ == Step::Kind::host_all_gather) {
    for (int local = 0; local < ranks_; ++local) {
      const Range range = slice(local);
      if (range.count > 0)
        std::memcpy(with_.keep + range.first * element_,
                    payloads_.data() + static_cast<std::size_t>(local) * payload_bytes_, range.count * element_);
    }
    return;
  }
  // Payloads hold the slices side by side, in local rank order; everyone sums what it needs of them.
  std::size_t at = 0;
  for (int local = 0; local < ranks_; ++local) {
    const Range range = slice(local);
    if (range.count > 0 && (local == self_ || kind_ == Step::Kind::host_all_reduce)) {
      for (int from = 0; from < ranks_; ++from)
        sources_[static_cast<std::size_t>(from)] = {
            payloads_.data() + static_cast<std::size_t>(from) * payload_bytes_ + at, with_.raw};
      fold(with_.op, with_.type, sources_, with_.keep + range.first * element_, range.count, with_.finish_ranks);
    }
    at += range.count * element_;
  }
}

// ---- staged ----

// The schedule: turn t stages chunk t, combines chunk t-1, collects chunk t-2. Each move waits for one condition and
// then acts without waiting.
bool HostStage::advance_staged() {
  for (; turn_ < chunks_ + 2; ++turn_) {
    for (; phase_ < 3; ++phase_, peer_ = 0) {
      const auto lag = static_cast<std::uint64_t>(phase_);
      if (turn_ < lag || turn_ - lag >= chunks_) continue;
      const std::uint64_t chunk = turn_ - lag;
      const bool done = phase_ == 0 ? stage(chunk) : phase_ == 1 ? combine(chunk) : collect(chunk);
      if (!done) return false;
    }
    phase_ = 0;
  }
  base_ += chunks_;
  return true;
}

/// Whether every rank's counter has reached `least`; of a phase that reads slices, only the owners of some matter.
bool HostStage::all_past(PolledWord RankBlock::*counter, std::uint64_t least, bool only_owners, std::uint64_t chunk) {
  for (; peer_ < ranks_; ++peer_) {
    if (peer_ == self_ || (only_owners && slice(peer_, chunk).count == 0)) continue;
    if ((arena_.block(peer_).*counter).value.load(std::memory_order_acquire) < least) return false;
  }
  return true;
}

/// The staged chunk of a peer, after a look at whose call it belongs to.
const std::byte* HostStage::chunk_of(int local, std::uint64_t chunk) {
  const std::byte* unit = arena_.chunk(local, base_ + chunk);
  std::uint64_t tag;
  std::memcpy(&tag, unit, sizeof tag);
  if (tag != with_.tag) throw TagMismatch{local};
  return unit + kUnitHeader;
}

bool HostStage::stage(std::uint64_t chunk) {
  const std::uint64_t number = base_ + chunk;
  std::byte* unit = nullptr;
  for (int local = 0; local < ranks_; ++local) {
    const Range range = slice(local, chunk);
    // A gather shows mine. A reduction shows the slices of others; of mine the result will follow, where all want it.
    const bool mine = local == self_, result_follows = mine && combines() && collects();
    if (range.count == 0 || (mine == combines() && !result_follows)) continue;
    if (unit == nullptr) {
      // The memory was last used kStagingDepth chunks ago; everyone must have left that.
      if (number >= kStagingDepth && !all_past(&RankBlock::left, number - kStagingDepth + 1, false, chunk))
        return false;
      unit = arena_.chunk(self_, number);
      std::memcpy(unit, &with_.tag, sizeof with_.tag);
    }
    if (result_follows) continue;
    const std::size_t place = combines() && only_ < 0 ? static_cast<std::size_t>(local) * segment_ * element_ : 0;
    std::memcpy(unit + kUnitHeader + place, with_.own + range.first * element_, range.count * element_);
    bytes_staged_ += range.count * element_;
  }
  arena_.block(self_).staged.value.store(number + 1, std::memory_order_release);
  return true;
}

bool HostStage::combine(std::uint64_t chunk) {
  if (!combines()) return true;
  const std::uint64_t number = base_ + chunk;
  const Range range = slice(self_, chunk);
  if (range.count > 0) {
    if (!all_past(&RankBlock::staged, number + 1, false, chunk)) return false;
    const std::size_t place = only_ < 0 ? static_cast<std::size_t>(self_) * segment_ * element_ : 0;
    for (int local = 0; local < ranks_; ++local)
      sources_[static_cast<std::size_t>(local)] = {
          local == self_ ? with_.own + range.first * element_ : chunk_of(local, chunk) + place, with_.raw};
    std::byte* result = with_.keep + range.first * element_;
    fold(with_.op, with_.type, sources_, result, range.count, with_.finish_ranks);
    if (collects()) {
      std::memcpy(arena_.chunk(self_, number) + kUnitHeader + place, result, range.count * element_);
      bytes_staged_ += range.count * element_;
    }
  }
  arena_.block(self_).reduced.value.store(number + 1, std::memory_order_release);
  if (!collects()) arena_.block(self_).left.value.store(number + 1, std::memory_order_release);
  return true;
}

bool HostStage::collect(std::uint64_t chunk) {
  if (!collects()) return true;
  const std::uint64_t number = base_ + chunk;
  if (!all_past(combines() ? &RankBlock::reduced : &RankBlock::staged, number + 1, true, chunk)) return false;
  for (int local = 0; local < ranks_; ++local) {
    const Range range = slice(local, chunk);
    if (range.count == 0) continue;
    std::byte* to = with_.keep + range.first * element_;
    if (local != self_) {
      const std::size_t place = combines() ? static_cast<std::size_t>(local) * segment_ * element_ : 0;
      std::memcpy(to, chunk_of(local, chunk) + place, range.count * element_);
    } else if (!combines() && to != with_.own + range.first * element_) {
      std::memcpy(to, with_.own + range.first * element_, range.count * element_);
    }
  }
  if (!combines()) arena_.block(self_).reduced.value.store(number + 1, std::memory_order_release);
  arena_.block(self_).left.value.store(number + 1, std::memory_order_release);
  return true;
}

}  // namespace collectives
