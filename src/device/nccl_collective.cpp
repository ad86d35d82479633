// Implementation of NcclCollective, which performs calls by NCCL, NVIDIA's library for collectives between GPUs.
//
// NCCL's own reductions do not always have the result that this library promises. For such a reduction, NCCL only moves
// the data, and a GPU kernel of this library reduces it. A call of this kind is called unsummed. In an unsummed call,
// each rank owns one part of the vector. Every rank sends its input for a part to the owner of the part. The GPU of the
// owner then combines the inputs of all ranks.
//
// An unsummed call works in rounds. A round moves as many elements of each part as fit into the scratch memory.
#include "device/nccl_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "base/wait.hpp"
#include "collectives/deadline.hpp"
#include "collectives/error.hpp"
#include "core/collective.hpp"
#include "shared_memory/host_operands.hpp"

namespace collectives {
namespace {

/// Alignment of the slots in the scratch memory, in bytes, equal to that of device memory.
constexpr std::size_t kSlotAlignment = 256;

/// Maximum wait for a stream (queue of GPU work) after a failure. If the work in the stream takes longer, the scratch
/// memory is not freed, because the GPU may still write to it.
constexpr auto kPatience = std::chrono::seconds(1);

NcclComm::Kind kind_of(Collective collective) {
  switch (collective) {
    case Collective::reduce_scatter: return NcclComm::Kind::reduce_scatter;
    case Collective::all_gather: return NcclComm::Kind::all_gather;
    case Collective::broadcast: return NcclComm::Kind::broadcast;
    case Collective::reduce: return NcclComm::Kind::reduce;
    case Collective::all_reduce:
    default: break;
  }
  return NcclComm::Kind::all_reduce;
}

bool equal(const Parts& parts) {
  for (int rank = 1; rank < parts.size(); ++rank)
    if (parts[rank].count != parts[0].count) return false;
  return true;
}

/// Returns the length of the parts if all of them are equally long, as a collective of NCCL requires. The last part may
/// be longer. Returns 0 if the lengths differ in another manner.
std::size_t equal_count(const Parts& parts) {
  const std::size_t each = parts[0].count;
  for (int rank = 1; rank < parts.size(); ++rank)
    if (rank + 1 < parts.size() ? parts[rank].count != each : parts[rank].count < each) return 0;
  return each;
}

}  // namespace

NcclCollective::NcclCollective(Device& device, std::unique_ptr<NcclComm> nccl_comm, int size, Rank self,
                               std::size_t scratch_bytes)
    : device_(device),
      nccl_comm_(std::move(nccl_comm)),
      size_(size),
      self_(self),
      scratch_limit_(scratch_bytes),
      done_(device.new_event()) {}

NcclCollective::~NcclCollective() {
  nccl_comm_.reset();
  try {
    if (at_ < calls_.size()) device_.record(done_, call_.stream);
    const Deadline patience = Deadline::in(kPatience);
    for (Backoff backoff; !device_.reached(done_); backoff.wait())
      // Freeing the memory would wait for the GPU, which may have stopped.
      if (patience.passed()) return;
  } catch (const Error&) {  // The GPU has failed.
    return;
  }
  for (void* const buffer : scratch_buffers_) device_.free(buffer);
  device_.end_event(done_);
}

// ---- a call ----

bool NcclCollective::whole(const Call& call) noexcept { return !call.unsummed || !reduces(call.collective); }

NcclCollective::Layout NcclCollective::layout_of(const Call& call) const {
  if (whole(call)) return {};
  const auto p = static_cast<std::size_t>(size_);
  const std::size_t bytes = size_of(call.carried()), slots = p * (call.coded() ? 2 : 1) + 1;
  const std::size_t longest =
      call.collective == Collective::reduce_scatter ? call.parts.longest() : (call.parts.whole().count + p - 1) / p;
  const std::size_t segment = std::clamp(scratch_limit_ / slots / kSlotAlignment * kSlotAlignment / bytes,
                                         std::size_t{1}, std::max(longest, std::size_t{1}));
  return {.segment = segment,
          .slot_bytes = (segment * bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment,
          .slots = slots,
          .rounds = (longest + segment - 1) / segment};
}

std::size_t NcclCollective::scratch_bytes_for(std::span<const Call> calls) const {
  std::size_t bytes = 0;
  for (const Call& call : calls) bytes = std::max(bytes, layout_of(call).bytes());
  return bytes;
}

bool NcclCollective::takes_memory(std::span<const Call> calls) const {
  return scratch_bytes_for(calls) > scratch_bytes_;
}

void NcclCollective::start(std::span<const Call> calls) {
  calls_.assign(calls.begin(), calls.end());
  at_ = 0;
  if (calls_.empty()) return;
  grow_scratch(scratch_bytes_for(calls_));  // None of the calls is in a stream yet, so one size serves all of them.
  // All streams share the scratch memory.
  device_.wait(calls_.front().stream, done_);
  begin(calls_.front());
}

void NcclCollective::begin(const Call& call) {
  call_ = call;
  layout_ = layout_of(call);
  round_ = 0;
  next_ = Next::exchange;
}

bool NcclCollective::progress() {
  const auto next_call = [&] {
    if (++at_ < calls_.size()) begin(calls_[at_]);
  };
  while (nccl_comm_->ready()) {
    if (at_ == calls_.size()) return true;
    group_.clear();
    if (round_ == layout_.rounds) {
      next_call();
      continue;
    }
    const Device::Stream stream = call_.stream;
    // Consecutive calls that NCCL performs as a whole form one group.
    if (whole(call_)) {
      for (; at_ < calls_.size() && whole(call_); next_call()) put_whole();
    } else if (next_ == Next::exchange) {
      exchange();
      next_ = Next::combine;
    } else if (next_ == Next::combine) {
      combine();
      next_ = Next::keep;
    } else {
      keep();
      next_ = Next::exchange;
      if (++round_ == layout_.rounds) next_call();
    }
    nccl_comm_->start(group_, stream);
    if (at_ == calls_.size()) device_.record(done_, stream);
  }
  return false;
}

void NcclCollective::add(NcclComm::Kind kind, const void* input, void* output, std::size_t count, Rank rank) {
  if (count == 0) return;
  group_.push_back({.kind = kind,
                    .input = input,
                    .output = output,
                    .count = count,
                    .type = carried(),
                    .op = call_.op,
                    .rank = rank});
}

void NcclCollective::put_whole() {
  const bool by_part = call_.collective == Collective::reduce_scatter || call_.collective == Collective::all_gather;
  const Parts& parts = call_.parts;
  if (!by_part) return add(kind_of(call_.collective), call_.input, call_.output, parts.whole().count, call_.root);
  const Range mine = parts[self_];
  const std::byte* const input =
      call_.collective == Collective::all_gather ? element_at(call_.input, mine.first, element()) : call_.input;
  std::byte* const output =
      call_.collective == Collective::reduce_scatter ? element_at(call_.output, mine.first, element()) : call_.output;
  const std::size_t each = equal_count(parts);
  add(kind_of(call_.collective), input, output, each, 0);
  for (Rank owner = 0; owner < size_; ++owner) {  // Elements beyond the common length `each`.
    const Range rest{parts[owner].first + each, parts[owner].count - each};
    if (call_.collective == Collective::all_gather)
      add(NcclComm::Kind::broadcast, element_at(input, each, element()),
          element_at(call_.output, rest.first, element()), rest.count, owner);
    else
      add(NcclComm::Kind::reduce, element_at(call_.input, rest.first, element()), element_at(output, each, element()),
          rest.count, owner);
  }
}

// ---- unsummed calls ----

Parts NcclCollective::parts_of_round() const {
  if (call_.collective == Collective::reduce_scatter) return call_.parts.round(layout_.segment, round_);
  const std::size_t all = layout_.segment * static_cast<std::size_t>(size_), first = all * round_;
  return Parts::equal({first, std::min(all, call_.parts.whole().count - first)}, size_);
}

std::byte* NcclCollective::slot(Rank rank) const { return scratch(static_cast<std::size_t>(rank)); }
std::byte* NcclCollective::result() const { return scratch(static_cast<std::size_t>(size_)); }
std::byte* NcclCollective::coded(Rank rank) const { return scratch(static_cast<std::size_t>(size_ + 1 + rank)); }

void NcclCollective::exchange() {
  const Parts parts = parts_of_round();
  for (Rank peer = 0; peer < size_; ++peer) {
    const Range part = parts[peer];
    const std::byte* contribution = element_at(call_.input, part.first, element());
    if (call_.coded() && part.count > 0) {
      device_.kernels().cast({contribution, part.count, call_.type}, {coded(peer), part.count, call_.wire},
                             call_.stream);
      contribution = coded(peer);
    }
    if (peer == self_) continue;
    add(NcclComm::Kind::send, contribution, nullptr, part.count, peer);
    add(NcclComm::Kind::receive, nullptr, slot(peer), parts[self_].count, peer);
  }
}

void NcclCollective::combine() {
  const Parts parts = parts_of_round();
  const Range mine = parts[self_];
  const bool at_root = call_.collective == Collective::reduce && self_ == call_.root;
  const bool result_stays_in_scratch = call_.coded() || (call_.collective == Collective::reduce && !at_root);
  std::byte* const mine_of_output = element_at(call_.output, mine.first, element());
  std::byte* const sum = result_stays_in_scratch ? result() : mine_of_output;
  if (mine.count > 0) {
    sources_.clear();
    for (Rank rank = 0; rank < size_; ++rank)
      sources_.push_back({rank != self_   ? slot(rank)
                          : call_.coded() ? coded(rank)
                                          : element_at(call_.input, mine.first, element()),
                          true});
    device_.kernels().fold(call_.op, carried(), sources_, std::span(&sum, 1), mine.count, size_, call_.stream);
  }
  // Coded results are gathered in place of the coded contributions, one part after the other.
  const std::size_t bytes = size_of(carried()), base = call_.coded() ? parts.whole().first : 0;
  const auto place = [&](Rank owner) {
    return element_at(call_.coded() ? coded(0) : call_.output, parts[owner].first - base, bytes);
  };
  if (call_.collective == Collective::all_reduce) {
    if (equal(parts)) return add(NcclComm::Kind::all_gather, sum, place(0), mine.count, 0);
    for (Rank owner = 0; owner < size_; ++owner)
      add(NcclComm::Kind::broadcast, owner == self_ ? sum : place(owner), place(owner), parts[owner].count, owner);
  } else if (at_root) {
    for (Rank owner = 0; owner < size_; ++owner)
      if (owner != self_) add(NcclComm::Kind::receive, nullptr, place(owner), parts[owner].count, owner);
  } else if (call_.collective == Collective::reduce) {
    add(NcclComm::Kind::send, sum, nullptr, mine.count, call_.root);
  }
}

void NcclCollective::keep() {
  if (!call_.coded()) return;
  const Parts parts = parts_of_round();
  const auto decode = [&](const std::byte* from, Range range) {
    if (range.count > 0)
      device_.kernels().cast({from, range.count, call_.wire},
                             {element_at(call_.output, range.first, element()), range.count, call_.type}, call_.stream);
  };
  const bool at_root = call_.collective == Collective::reduce && self_ == call_.root;
  if (call_.collective == Collective::all_reduce || at_root) decode(coded(0), parts.whole());
  if (call_.collective == Collective::reduce_scatter || at_root) decode(result(), parts[self_]);
}

void NcclCollective::grow_scratch(std::size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  const std::size_t more = std::bit_ceil(bytes);
  scratch_buffers_.push_back(device_.allocate(more));
  scratch_bytes_ = more;
}

}  // namespace collectives
