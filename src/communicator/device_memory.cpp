// Memory of a GPU for programs (collectives/device_memory.hpp).
//
// If NCCL connects the ranks, NCCL allocates the memory. It is then registered with the communicator that was asked
// (ncclCommRegister). Otherwise the device allocates plain memory, which kernels can access.
//
// Each rank registers memory for itself. No rank waits for another, and a rank that does not register harms no other.
//
// Allocating, freeing and registering wait until no operation is queued or in flight. CUDA may wait for the GPU, and
// NCCL for other ranks.
//
// Price: no symmetric windows. NCCL's fastest kernels need them, but all ranks must make them together.
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
#include "device/placement.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

struct DeviceMemory::State {
  Communicator::Impl* owner = nullptr;  ///< null: no communicator knows of the memory
  std::shared_ptr<Device> device;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  bool own = false;                  ///< whether the destructor frees the memory
  const Nccl* taken_from = nullptr;  ///< library that allocated the memory; null: the device did
  DeviceAccess access = DeviceAccess::copied;
  std::string how = {};  ///< details of `access`, as text

  ~State() {
    if (owner != nullptr && owner->inherited()) return;  // memory and GPU belong to the parent process
    if (owner != nullptr) owner->forget(*this);
    if (own && taken_from == nullptr) device->free(data);
    if (taken_from != nullptr) try {
        device->while_current([&] { taken_from->free(data); });
      } catch (const Error&) {  // the GPU has failed, and its memory is lost
      }
  }
};

namespace {

/// Calls `work`. Adds operation and rank to its errors.
template <class Work>
auto named(std::string_view operation, Rank rank, Work&& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!error.operation().empty()) throw;  // a failed communicator's error names its operation
    throw Error(error.code(), fmt::format("{}: rank {}: {}", operation, rank, error.what()), rank, rank,
                std::string(operation));
  }
}

void warn_once_nothing_registered(Rank rank, const Nccl& nccl) {
  static std::atomic<bool> said = false;
  if (!said.exchange(true))
    log_info(rank, "{} lacks ncclMemAlloc or ncclCommRegister: device memory is used unregistered", nccl.description());
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

// ---- the communicator's part ----

void Communicator::Impl::prepare_for_memory(std::unique_lock<std::mutex>& lock) {
  if (context.device == nullptr)
    throw Error(Errc::unsupported, fmt::format("this communicator takes no device buffers: {}", context.no_device));
  if (!context.topology.gpus.everywhere) throw Error(Errc::unsupported, context.topology.gpus.missing);
  wait_for_in_flight(lock, false);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

DeviceMemory Communicator::Impl::allocate_on_device(std::size_t bytes) {
  auto lock = guard();
  return named("allocate_on_device", rank(), [&]() -> DeviceMemory {
    prepare_for_memory(lock);
    if (bytes == 0) return {};
    const Nccl* const from = nccl() != nullptr && context.nccl->has_memory() ? context.nccl : nullptr;
    std::unique_ptr<DeviceMemory::State> state(new DeviceMemory::State{.device = context.device, .bytes = bytes});
    void* data = nullptr;
    if (from == nullptr)
      data = context.device->allocate(bytes);
    else
      context.device->while_current([&] { data = from->allocate(bytes); });
    state->data = static_cast<std::byte*>(data);
    state->own = true;
    state->taken_from = from;
    adopt(*state);
    return DeviceMemory(std::move(state));
  });
}

DeviceMemory Communicator::Impl::register_memory(std::byte* data, std::size_t bytes) {
  auto lock = guard();
  return named("register_memory", rank(), [&]() -> DeviceMemory {
    prepare_for_memory(lock);
    if (bytes == 0) return {};
    check_range(*context.device, data, bytes);
    std::unique_ptr<DeviceMemory::State> state(
        new DeviceMemory::State{.device = context.device, .data = data, .bytes = bytes});
    adopt(*state);
    return DeviceMemory(std::move(state));
  });
}

void Communicator::Impl::adopt(DeviceMemory::State& memory) {
  memories_.reserve(memories_.size() + 1);
  if (nccl() != nullptr && context.nccl->has_memory()) {
    nccl()->registry().add(memory.data, memory.bytes);
    memory.access = DeviceAccess::registered;
    memory.how = fmt::format(" ({})", context.nccl->description());
  } else {
    if (nccl() != nullptr) warn_once_nothing_registered(rank(), *context.nccl);
    if (peers_can_access(memory.data)) memory.access = DeviceAccess::mapped;
  }
  memory.owner = this;
  memories_.push_back(&memory);
}

/// Returns whether the GPUs of the other ranks can access the memory.
bool Communicator::Impl::peers_can_access(std::byte* data) {
  const bool by_gpus =
      settings.backend == "auto" || settings.backend == "hierarchical" || passes_messages(settings.backend);
  if (!by_gpus || !context.topology.one_host() || !context.topology.gpus.peer_access) return false;
  if (context.threads) return true;
  try {
    context.device->peer_access().share(context.device->allocation_of(data).base);
    return true;
  } catch (const Error&) {  // memory of a pool cannot be shared
    return false;
  }
}

void Communicator::Impl::forget(DeviceMemory::State& memory) noexcept {
  auto lock = guard();
  std::erase(memories_, &memory);
  memory.owner = nullptr;
  wait_for_in_flight(lock, false);
  if (memory.access == DeviceAccess::registered) try {
      nccl()->registry().remove(memory.data);
    } catch (const std::exception& error) {
      log_warning(rank(), "giving back device memory: {}", error.what());
    }
}

void Communicator::Impl::detach_memories() noexcept {
  for (DeviceMemory::State* const memory : memories_) {
    memory->owner = nullptr;
    memory->access = DeviceAccess::copied;
    memory->how = ", its communicator is gone";
  }
  memories_.clear();
  if (nccl() != nullptr) try {
      nccl()->registry().clear();
    } catch (const std::exception& error) {
      log_warning(rank(), "leaving a communicator: {}", error.what());
    }
}

}  // namespace collectives
