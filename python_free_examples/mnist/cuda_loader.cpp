// Loads the trainer's library for GPUs at run time. The trainer is not linked to CUDA, so it also runs on machines
// without CUDA.
#include <dlfcn.h>
#include <fmt/format.h>

#include <collectives/version.hpp>
#include <stdexcept>
#include <string_view>

#include "device.hpp"
#include "gpu/component.hpp"

namespace mnist {

std::unique_ptr<Device> load_cuda_device(int local_rank) {
  // dlopen() searches the run path of the program, which contains the folder of this library.
  void* library = ::dlopen("libmnist_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  const auto version = reinterpret_cast<decltype(&mnist_cuda_version)>(::dlsym(library, "mnist_cuda_version"));
  const auto device = reinterpret_cast<decltype(&mnist_cuda_device)>(::dlsym(library, "mnist_cuda_device"));
  if (version == nullptr || device == nullptr || version() != collectives::version())
    throw std::runtime_error(fmt::format("libmnist_cuda.so is of version {}, this program of {}",
                                         version != nullptr ? version() : "unknown", collectives::version()));
  char why_not[512] = "";
  std::unique_ptr<Device> made(device(local_rank, why_not, sizeof why_not));
  if (!made) throw std::runtime_error(why_not);
  return made;
}

}  // namespace mnist
