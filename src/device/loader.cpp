#include "device/loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "cuda/component.hpp"

namespace collectives {
namespace {

DeviceMaker& replacement() {
  static DeviceMaker maker;
  return maker;
}

}  // namespace

void replace_devices(DeviceMaker maker) { replacement() = std::move(maker); }

bool driver_is_loaded() noexcept {
  if (replacement()) return true;
  void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  ::dlclose(driver);  // of which there is another reference
  return true;
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
