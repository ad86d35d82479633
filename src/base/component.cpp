// Implementation of components. A component is a shared library of the project that needs other software, such as UCX
// or CUDA. The core library loads a component at run time. It therefore also runs on machines without that software. It
// refuses a component whose version differs from its own.
#include "base/component.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <string_view>

#include "collectives/version.hpp"

namespace collectives {

std::string own_directory() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<void*>(&own_directory), &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string_view file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string_view::npos ? std::string() : std::string(file.substr(0, slash));
}

Component::Component(const std::string& file, const char* version_symbol, const std::string& directory)
    : path_(directory + "/" + file) {
  if (directory.empty() || ::access(path_.c_str(), R_OK) != 0) path_ = file;
  library_ = ::dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library_ == nullptr) {
    why_not_ = ::dlerror();
    return;
  }
  const char* (*its_version)() = nullptr;
  if (find(its_version, version_symbol) && its_version() != version())
    why_not_ = fmt::format("{} is of version {}, the library is {}", path_, its_version(), version());
}

void* Component::address(const char* symbol) {
  if (!why_not_.empty()) return nullptr;
  void* const found = ::dlsym(library_, symbol);
  if (found == nullptr) why_not_ = fmt::format("{} is of version unknown, the library is {}", path_, version());
  return found;
}

}  // namespace collectives
