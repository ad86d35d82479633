// Implementation of BufferExchange, by which the GPUs of a host access the buffers of all its ranks during a call.
//
// In each call, a rank writes the names of its GPU buffers into the arena, the shared memory of the host. A name
// describes a buffer in such a way that other processes can open it. The other ranks read the names, and open the
// buffers. A rank starts its kernel when it has opened the buffers of all ranks. It ends the call when the kernels of
// all ranks are done.
#include "device/buffer_exchange.hpp"

#include "shared_memory/host_operands.hpp"

namespace collectives {

bool BufferExchange::set_own(const HostTask& task, const std::byte* source, const std::byte* destination) {
  const auto own_source = show(task, source, false), own_destination = show(task, destination, true);
  if (!own_source || !own_destination) return false;
  source_ = *own_source;
  destination_ = *own_destination;
  return true;
}

void BufferExchange::set_own_shared(const HostTask& task, const std::byte* source, const std::byte* destination) {
  source_ = show_shared(task, source, false);
  destination_ = show_shared(task, destination, true);
}

std::optional<RemoteBuffer> BufferExchange::show(const HostTask& task, const std::byte* from_element_0,
                                                 bool destination) {
  const Range range = task.held(arena_.self(), destination);
  if (range.count == 0 || from_element_0 == nullptr) return RemoteBuffer{};
  const std::byte* const first = element_at(from_element_0, range.first, task.element);
  if (task.combines() && reinterpret_cast<std::uintptr_t>(first) % task.element != 0) return std::nullopt;
  return peers_->show(first);
}

RemoteBuffer BufferExchange::show_shared(const HostTask& task, const std::byte* from_element_0, bool destination) {
  const Range range = task.held(arena_.self(), destination);
  if (range.count == 0 || from_element_0 == nullptr) return {};
  return peers_->show_for_certain(element_at(from_element_0, range.first, task.element));
}

void BufferExchange::publish(bool objects) {
  BufferRecord& record = sync_block(arena_.self()).buffers;
  record.objects.store(objects, std::memory_order_relaxed);
  record.source.store(source_.address, std::memory_order_relaxed);
  record.source_name.store(source_.name, std::memory_order_relaxed);
  record.destination.store(destination_.address, std::memory_order_relaxed);
  record.destination_name.store(destination_.name, std::memory_order_relaxed);
  record.tag.store(tag_, std::memory_order_release);
  peer_ = 0;
}

bool BufferExchange::all_published(const HostTask& task) {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (!tag_matches(sync_block(peer_).buffers.tag.load(std::memory_order_acquire), tag_, peer_)) return false;
  peer_ = 0;
  find_buffers(task);
  return true;
}

void BufferExchange::find_buffers(const HostTask& task) {
  for (int rank = 0; rank < arena_.ranks(); ++rank) {
    const BufferRecord& record = sync_block(rank).buffers;
    const auto at = [&](std::uint64_t address, std::uint64_t name, bool destination) -> std::byte* {
      if (address == 0) return nullptr;
      const std::size_t before = task.held(rank, destination).first * task.element;
      return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(peers_->pointer(rank, {address, name})) -
                                          before);
    };
    buffers_[static_cast<std::size_t>(rank)] = {
        at(record.source.load(std::memory_order_relaxed), record.source_name.load(std::memory_order_relaxed), false),
        at(record.destination.load(std::memory_order_relaxed), record.destination_name.load(std::memory_order_relaxed),
           true)};
  }
}

bool BufferExchange::any_objection() const noexcept {
  for (int rank = 0; rank < arena_.ranks(); ++rank)
    if (sync_block(rank).buffers.objects.load(std::memory_order_relaxed)) return true;
  return false;
}

/// Sets the flag that this rank accesses memory of peers, and then checks whether a rank has reported a failure. A rank
/// that fails does so in the opposite order: it reports the failure, and then reads the flags. Therefore this rank sees
/// the failure, or the failing rank sees the flag.
bool BufferExchange::begin_remote_access() noexcept {
  arena_.block(arena_.self()).remote_access.value.store(1);
  if (!arena_.failed()) return true;
  end_remote_access();
  return false;
}
void BufferExchange::end_remote_access() noexcept { arena_.block(arena_.self()).remote_access.value.store(0); }

void BufferExchange::publish_done() noexcept {
  sync_block(arena_.self()).worked.value.store(tag_, std::memory_order_release);
}

bool BufferExchange::all_done() {
  for (; peer_ < arena_.ranks(); ++peer_)
    if (sync_block(peer_).worked.value.load(std::memory_order_acquire) != tag_) return false;
  peer_ = 0;
  return true;
}

}  // namespace collectives
