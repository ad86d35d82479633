// Implementation of the loader, which loads libcollectives_cuda at run time. This shared library contains the code
// compiled with CUDA. The core library therefore also runs on machines without CUDA. Tests replace the loaded library
// by fake GPUs.
#include "device/loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <type_traits>
#include <utility>

#include "device/cuda_component.hpp"

namespace collectives {
namespace {

DeviceMaker& replacement() {
  static DeviceMaker maker;
  return maker;
}

/// Returns a handle of CUDA's driver library, which the caller must dlclose(). Returns null if the process has not
/// loaded the library. The call takes 30 us, because dlopen() searches for the file.
void* driver_if_loaded() { return ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD); }

}  // namespace

void replace_devices(DeviceMaker maker) { replacement() = std::move(maker); }

bool cuda_driver_is_loaded() noexcept {
  void* const driver = driver_if_loaded();
  if (driver != nullptr) ::dlclose(driver);
  return driver != nullptr;
}

bool cuda_is_in_use() noexcept {
  if (replacement()) return true;
  void* const driver = driver_if_loaded();
  if (driver == nullptr) return false;
  // The driver may be loaded although the process does not use CUDA, because other libraries load it to inspect the
  // machine. The code below therefore asks the driver whether the process has a context on any GPU. The functions of
  // the driver return 0 for success.
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
  ::dlclose(driver);  // Another reference keeps the driver loaded.
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
