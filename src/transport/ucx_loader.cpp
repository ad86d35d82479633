#include "transport/ucx_loader.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <string_view>

#include "collectives/version.hpp"

namespace collectives {
namespace {

/// What ucx_component.hpp declares.
struct Component {
  Network* (*network)(char* why_not, std::size_t bytes) = nullptr;
  int (*has_fast_device)() = nullptr;
};

/// False, and why, where the component cannot be used.
bool load(Component& component, std::string& why_not, const std::string& directory) {
  std::string path = directory + "/" + COLLECTIVES_UCX_FILE;
  if (directory.empty() || ::access(path.c_str(), R_OK) != 0) path = COLLECTIVES_UCX_FILE;
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_not = fmt::format("UCX cannot be used: {}", ::dlerror());
    return false;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, symbol));
    return function != nullptr;
  };
  const char* (*its_version)() = nullptr;
  if (!find(its_version, "collectives_ucx_version") || its_version() != version() ||
      !find(component.network, "collectives_ucx_network") ||
      !find(component.has_fast_device, "collectives_ucx_has_fast_device")) {
    why_not = fmt::format("UCX cannot be used: {} is of version {}, the library is {}", path,
                          its_version != nullptr ? its_version() : "unknown", version());
    return false;
  }
  return true;
}

}  // namespace

std::string own_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(file.substr(0, slash));
}

std::unique_ptr<Network> load_ucx_network(std::string& why_not, const std::string& directory) {
  Component component;
  if (!load(component, why_not, directory)) return nullptr;
  char text[512] = "";
  std::unique_ptr<Network> network(component.network(text, sizeof text));
  if (!network) why_not = text;
  return network;
}

bool ucx_has_fast_device(std::string& why_not, const std::string& directory) {
  Component component;
  if (!load(component, why_not, directory)) return false;
  const bool found = component.has_fast_device() != 0;
  if (!found) why_not = "UCX finds no network device here that it drives past the kernel";
  return found;
}

}  // namespace collectives
