// Implementation of GpuPeers, by which a rank accesses GPU memory of the other ranks of its host.
//
// CUDA makes a handle for each allocation of GPU memory. Another process that has the handle can open the allocation,
// and then access its memory. A rank writes the handles of its allocations into the arena, the shared memory of the
// host. Each rank has several places for handles there. Peers read a handle when they first need the allocation.
#include "device/gpu_peers.hpp"

#include <algorithm>
#include <bit>

#include "collectives/error.hpp"

namespace collectives {
namespace {

/// Handle as an array of 8-byte words. The arena stores handles in this form.
using Words = std::array<std::uint64_t, sizeof(Device::Handle) / sizeof(std::uint64_t)>;
static_assert(sizeof(Words) == sizeof(GpuMemoryRecord::handle));

}  // namespace

GpuPeers::GpuPeers(Device& device, const Arena& arena)
    : device_(device), arena_(arena), opened_(static_cast<std::size_t>(arena.ranks()) * kGpuMemoryRecords) {
  for (int local = 0; local < arena.ranks(); ++local) processes_ = processes_ || !same_process(local);
}

GpuPeers::~GpuPeers() {
  if (leaks_mappings_) return;
  for (const Opened& one : opened_)
    if (one.memory != nullptr) device_.peer_access().close(one.memory);
}

// ---- allocations of this rank ----

std::optional<RemoteBuffer> GpuPeers::show(const std::byte* address) {
  RemoteBuffer buffer{.address = reinterpret_cast<std::uintptr_t>(address)};
  if (!processes_) {
    if (device_.memory_of(address).kind != Device::Kind::device) return std::nullopt;
    return buffer;
  }
  const Device::Allocation memory = device_.allocation_of(address);
  const std::optional<std::size_t> place = place_of(memory);
  if (!place) return std::nullopt;
  buffer.name = (*place + 1) << kOffsetBits | static_cast<std::uint64_t>(address - memory.base);
  return buffer;
}

RemoteBuffer GpuPeers::show_for_certain(const std::byte* address) {
  if (const auto buffer = show(address)) return *buffer;
  throw Error(Errc::system, "memory of this rank's GPU cannot be shared with other processes any more");
}

std::optional<std::size_t> GpuPeers::place_of(const Device::Allocation& memory) {
  if (memory.base == nullptr || memory.buffer_id == 0 || memory.bytes >> kOffsetBits != 0) return std::nullopt;
  auto found = std::ranges::find(shown_, memory.buffer_id, &Shown::buffer_id);
  if (found == shown_.end()) {
    Device::Handle handle;
    try {
      handle = device_.peer_access().share(memory.base);
    } catch (const Error&) {
      return std::nullopt;
    }
    withdraw_freed();
    found = std::ranges::min_element(shown_, {}, &Shown::used);
    write(static_cast<std::size_t>(found - shown_.begin()), handle);
    *found = {memory.base, memory.buffer_id, 0};
  }
  found->used = ++uses_;
  return static_cast<std::size_t>(found - shown_.begin());
}

void GpuPeers::withdraw_freed() {
  for (Shown& one : shown_) {
    if (one.buffer_id == 0 || device_.allocation_of(one.base).buffer_id == one.buffer_id) continue;
    write(static_cast<std::size_t>(&one - shown_.data()), {});
    one = {};
  }
}

/// Writes a handle into a place of the arena. A peer reads a place only if a call has published a name for it. During
/// the write there is no valid name: the call with the old name has ended, and the new name is published later.
void GpuPeers::write(std::size_t place, const Device::Handle& handle) noexcept {
  GpuMemoryRecord& record = arena_.gpu_block(arena_.self()).memory[place];
  const auto words = std::bit_cast<Words>(handle);
  for (std::size_t i = 0; i < words.size(); ++i) record.handle[i].store(words[i], std::memory_order_relaxed);
  record.sequence.fetch_add(1, std::memory_order_release);
}

// ---- allocations of the peers ----

std::byte* GpuPeers::pointer(int local, const RemoteBuffer& buffer) {
  if (same_process(local)) return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(buffer.address));
  if (buffer.name == 0) return nullptr;
  const std::size_t place = (buffer.name >> kOffsetBits) - 1;
  const std::size_t offset = buffer.name & ((std::uint64_t{1} << kOffsetBits) - 1);
  const GpuMemoryRecord& record = arena_.gpu_block(local).memory[place % kGpuMemoryRecords];
  Opened& opened = opened_[static_cast<std::size_t>(local) * kGpuMemoryRecords + place % kGpuMemoryRecords];
  if (const std::uint64_t sequence = record.sequence.load(std::memory_order_acquire); opened.sequence != sequence) {
    close_withdrawn();
    Words words;
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = record.handle[i].load(std::memory_order_relaxed);
    opened.memory = static_cast<std::byte*>(device_.peer_access().open(std::bit_cast<Device::Handle>(words)));
    opened.sequence = sequence;
  }
  return opened.memory + offset;
}

void GpuPeers::close_withdrawn() noexcept {
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    const auto local = static_cast<int>(i / kGpuMemoryRecords);
    const GpuMemoryRecord& record = arena_.gpu_block(local).memory[i % kGpuMemoryRecords];
    if (opened_[i].memory == nullptr || opened_[i].sequence == record.sequence.load(std::memory_order_relaxed))
      continue;
    device_.peer_access().close(opened_[i].memory);
    opened_[i] = {};
  }
}

}  // namespace collectives
