// Implementation of the loader of NCCL, NVIDIA's library for collectives between GPUs. The loader opens the shared
// library at run time, checks its version, and looks up its functions by name.
#include "cuda/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "collectives/error.hpp"

namespace collectives::nccl {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10'000, version / 100 % 100, version % 100);
}

void Library::check(ncclResult_t result, const std::string& what, ncclComm_t comm) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* const words = GetLastError(comm);
  throw Error(Errc::system, fmt::format("NCCL {}: {}: {}{}{}", version_text(version), what, GetErrorString(result),
                                        words != nullptr && *words != '\0' ? ": " : "", words != nullptr ? words : ""));
}

const Library* load_library(const std::string& path, std::string& why_not) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    why_not = fmt::format("NCCL cannot be loaded: {}", ::dlerror());
    return nullptr;
  }
  auto library = std::make_unique<Library>();
  library->path = path;
  std::string missing;
#define COLLECTIVES_FIND(name)                                                              \
  library->name = reinterpret_cast<decltype(library->name)>(::dlsym(handle, "nccl" #name)); \
  if (library->name == nullptr) missing += (missing.empty() ? "nccl" : ", nccl") + std::string(#name);
  COLLECTIVES_NCCL_FUNCTIONS(COLLECTIVES_FIND)
  const std::string needed_and_missing = std::exchange(missing, {});
  COLLECTIVES_NCCL_MEMORY_FUNCTIONS(COLLECTIVES_FIND)
#undef COLLECTIVES_FIND
  library->has_memory = missing.empty();
  // Checks the version first. If the library is too old, its version explains the error better than a list of missing
  // functions.
  const bool told = library->GetVersion != nullptr && library->GetVersion(&library->version) == ncclSuccess;
  if (!told) {
    why_not = fmt::format("{} does not tell its version, so it is no NCCL to use", path);
  } else if (library->version < kOldest || library->version / 10'000 != NCCL_MAJOR) {
    why_not = fmt::format("{} is NCCL {}; it must be {} or a later {}.x", path, version_text(library->version),
                          version_text(kOldest), NCCL_MAJOR);
  } else if (!needed_and_missing.empty()) {
    why_not = fmt::format("{}, which calls itself NCCL {}, lacks {}", path, version_text(library->version),
                          needed_and_missing);
  } else {
    return library.release();
  }
  ::dlclose(handle);
  return nullptr;
}

const Library* find_library(std::string& why_not) {
  struct Found {
    std::string why_not;
    const Library* library = load_library("libnccl.so.2", why_not);
  };
  static const Found found;
  why_not = found.why_not;
  return found.library;
}

}  // namespace collectives::nccl
