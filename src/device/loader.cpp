#include "device/loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <cstddef>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cuda/component.hpp"
#include "fork.hpp"

namespace collectives {
namespace {

DeviceMaker& replacement() {
  static DeviceMaker maker;
  return maker;
}

constinit std::mutex walking;

/// Whether a library whose name begins so is in the process. dlopen with RTLD_NOLOAD would look for its file first. The
/// C library has a lock meanwhile that it does not make free in a child that is forked then.
bool is_loaded(std::string_view name) {
  const auto is_it = [](dl_phdr_info* library, std::size_t, void* wanted) {
    const std::string_view path = library->dlpi_name;
    return path.substr(path.rfind('/') + 1).starts_with(*static_cast<std::string_view*>(wanted)) ? 1 : 0;
  };
  hold_over_forks<walking>();
  const std::lock_guard lock(walking);
  return ::dl_iterate_phdr(is_it, &name) != 0;
}

}  // namespace

void replace_devices(DeviceMaker maker) { replacement() = std::move(maker); }

bool cuda_driver_is_loaded() { return is_loaded("libcuda.so"); }

bool cuda_is_in_use() {
  if (replacement()) return true;
  void* const driver = cuda_driver_is_loaded() ? ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) : nullptr;
  if (driver == nullptr) return false;
  // Other libraries load it to look around. CUDA's results are 0 for success.
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(driver, name));
    return function != nullptr;
  };
  int (*current)(void**) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*state)(int, unsigned*, int*) = nullptr;
  void* context = nullptr;
  bool used = find(current, "cuCtxGetCurrent") && current(&context) == 0 && context != nullptr;
  int devices = 0;
  if (!used && find(count, "cuDeviceGetCount") && find(get, "cuDeviceGet") &&
      find(state, "cuDevicePrimaryCtxGetState") && count(&devices) == 0)
    for (int ordinal = 0; ordinal < devices && !used; ++ordinal) {
      int device = 0, active = 0;
      unsigned flags = 0;
      used = get(&device, ordinal) == 0 && state(device, &flags, &active) == 0 && active != 0;
    }
  ::dlclose(driver);  // of which there is another reference
  return used;
}

std::unique_ptr<Device> find_device(std::string& why_not, const std::string& directory) {
  if (replacement()) return replacement()(why_not);
  Component component(COLLECTIVES_CUDA_FILE, "collectives_cuda_version", directory);
  decltype(&collectives_cuda_device) device = nullptr;
  if (!component.find(device, "collectives_cuda_device")) {
    why_not = fmt::format("GPUs cannot be used: {}", component.why_not());
    return nullptr;
  }
  char text[512] = "";
  std::unique_ptr<Device> found(device(text, sizeof text));
  if (!found) why_not = text;
  return found;
}

}  // namespace collectives
