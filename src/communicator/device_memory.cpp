// GPU memory for programs: implements the public class DeviceMemory, the program's handle of GPU memory.
//
// A communicator allocates GPU memory for the program, or registers GPU memory that the program has allocated itself.
// It keeps a list of the allocated and of the registered memory (DeviceMemories). If the handle is destroyed before the
// communicator, the handle removes the memory from the list. If the communicator is destroyed first, allocated memory
// stays valid until the handle is destroyed.
#include "collectives/device_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/device_memories.hpp"
#include "device/placement.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

struct DeviceMemory::State : DeviceAllocation {
  Communicator::Impl* owner = nullptr;  ///< communicator that has the memory in its list, while it is `attached`

  ~State() {
    if (attached && owner->inherited()) return;  // in a forked child, memory and GPU belong to the parent process
    if (attached) owner->forget(*this);
    if (own && taken_from == nullptr) device->free(data);
    if (taken_from != nullptr) try {
        device->while_current([&] { taken_from->free(data); });
      } catch (const Error&) {  // the GPU has failed, so its memory cannot be freed
      }
  }
};

namespace {

/// Calls `work`. If it throws an error that names no operation, puts the operation and the rank before the error text.
template <class Work>
auto named(std::string_view operation, Rank rank, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!error.operation().empty()) throw;  // the error names the operation already
    throw Error(error.code(), fmt::format("{}: rank {}: {}", operation, rank, error.what()), rank, rank,
                std::string(operation));
  }
}

void warn_once_nothing_registered(Rank rank, const Nccl& nccl) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true))
    log_info(rank, "{} lacks ncclMemAlloc or ncclCommRegister: device memory is used unregistered", nccl.description());
}

/// Returns whether GPUs of other ranks can access the memory.
bool peers_can_access(const CommunicatorResources& resources, std::byte* data) {
  const CommunicatorContext& context = resources.context;
  const std::string& backend = resources.settings.backend;
  const bool by_gpus = backend == "auto" || backend == "hierarchical" || passes_messages(backend);
  if (!by_gpus || !context.topology.one_host() || !context.topology.gpus.peer_access) return false;
  if (context.threads) return true;
  try {
    context.device->peer_access().share(context.device->allocation_of(data).base);
    return true;
  } catch (const Error&) {  // some memory, such as that of a CUDA memory pool, cannot be shared
    return false;
  }
}

}  // namespace

std::string_view to_string(DeviceAccess access) noexcept {
  switch (access) {
    case DeviceAccess::registered: return "registered";
    case DeviceAccess::mapped: return "mapped";
    case DeviceAccess::copied: return "copied";
  }
  return "unknown access";
}

// ---- public class ----

DeviceMemory::DeviceMemory() noexcept = default;
DeviceMemory::DeviceMemory(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceMemory::DeviceMemory(DeviceMemory&&) noexcept = default;
DeviceMemory& DeviceMemory::operator=(DeviceMemory&&) noexcept = default;
DeviceMemory::~DeviceMemory() = default;

std::byte* DeviceMemory::data() const noexcept { return state_ != nullptr ? state_->data : nullptr; }
std::size_t DeviceMemory::size() const noexcept { return state_ != nullptr ? state_->bytes : 0; }

DeviceAccess DeviceMemory::access() const noexcept { return state_ != nullptr ? state_->access : DeviceAccess::copied; }

std::string DeviceMemory::describe() const {
  if (state_ == nullptr) return "0 B";
  return fmt::format("{} on GPU {}: {}{}", bytes_text(state_->bytes), state_->device->number(),
                     to_string(state_->access), state_->how);
}

// ---- calls of the communicator ----

DeviceMemory Communicator::Impl::allocate_on_device(std::size_t bytes) {
  auto lock = progress_thread_.guard();
  return named("allocate_on_device", resources.rank(), [&]() -> DeviceMemory {
    device_memories_.check_supported();
    queue_.wait_until_idle(lock, false);
    queue_.throw_failure();
    if (bytes == 0) return {};
    auto state = std::make_unique<DeviceMemory::State>();
    state->owner = this;
    device_memories_.allocate(*state, bytes);
    return DeviceMemory(std::move(state));
  });
}

DeviceMemory Communicator::Impl::register_memory(std::byte* data, std::size_t bytes) {
  auto lock = progress_thread_.guard();
  return named("register_memory", resources.rank(), [&]() -> DeviceMemory {
    device_memories_.check_supported();
    queue_.wait_until_idle(lock, false);
    queue_.throw_failure();
    if (bytes == 0) return {};
    auto state = std::make_unique<DeviceMemory::State>();
    state->owner = this;
    device_memories_.add(*state, data, bytes);
    return DeviceMemory(std::move(state));
  });
}

void Communicator::Impl::forget(DeviceAllocation& memory) noexcept {
  auto lock = progress_thread_.guard();
  queue_.wait_until_idle(lock, false);
  for (PersistentCall::State* const call : handles_.persistent) call->mark_freed(memory);
  device_memories_.remove(memory);
}

// ---- the list of device memory ----

void DeviceMemories::check_supported() const {
  const CommunicatorContext& context = resources_.context;
  if (context.device == nullptr)
    throw Error(Errc::unsupported, fmt::format("this communicator takes no device buffers: {}", context.no_device));
  if (!context.topology.gpus.everywhere) throw Error(Errc::unsupported, context.topology.gpus.missing);
}

void DeviceMemories::allocate(DeviceAllocation& memory, std::size_t bytes) {
  const CommunicatorContext& context = resources_.context;
  const Nccl* const from = resources_.nccl() != nullptr && context.nccl->has_memory() ? context.nccl : nullptr;
  memory.device = context.device;
  memory.bytes = bytes;
  void* data = nullptr;
  if (from == nullptr)
    data = context.device->allocate(bytes);
  else
    context.device->while_current([&] { data = from->allocate(bytes); });
  memory.data = static_cast<std::byte*>(data);
  memory.own = true;
  memory.taken_from = from;
  attach(memory);
}

void DeviceMemories::add(DeviceAllocation& memory, std::byte* data, std::size_t bytes) {
  check_range(*resources_.context.device, data, bytes);
  memory.device = resources_.context.device;
  memory.data = data;
  memory.bytes = bytes;
  attach(memory);
}

void DeviceMemories::attach(DeviceAllocation& memory) {
  NcclPath* const nccl = resources_.nccl();
  const CommunicatorContext& context = resources_.context;
  memories_.reserve(memories_.size() + 1);
  if (nccl != nullptr && context.nccl->has_memory()) {
    nccl->registry().add(memory.data, memory.bytes);
    memory.access = DeviceAccess::registered;
    memory.how = fmt::format(" ({})", context.nccl->description());
  } else {
    if (nccl != nullptr) warn_once_nothing_registered(context.rank, *context.nccl);
    if (peers_can_access(resources_, memory.data)) memory.access = DeviceAccess::mapped;
  }
  memory.attached = true;
  memories_.push_back(&memory);
}

void DeviceMemories::remove(DeviceAllocation& memory) noexcept {
  std::erase(memories_, &memory);
  memory.attached = false;
  if (memory.access == DeviceAccess::registered) try {
      resources_.nccl()->registry().remove(memory.data);
    } catch (const std::exception& error) {
      log_warning(resources_.rank(), "giving back device memory: {}", error.what());
    }
}

void DeviceMemories::detach() noexcept {
  for (DeviceAllocation* const memory : memories_) {
    memory->attached = false;
    memory->access = DeviceAccess::copied;
    memory->how = ", its communicator is gone";
  }
  memories_.clear();
  if (resources_.nccl() != nullptr) try {
      resources_.nccl()->registry().clear();
    } catch (const std::exception& error) {
      log_warning(resources_.rank(), "leaving a communicator: {}", error.what());
    }
}

}  // namespace collectives
