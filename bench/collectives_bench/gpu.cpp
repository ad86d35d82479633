// Implementation of the GPU of collectives_bench. The benchmark is not linked to CUDA. It allocates GPU memory and
// times calls through libcollectives_cuda, a shared library of the project.
#include "collectives_bench/gpu.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

#include "base/bounded_yield.hpp"
#include "collectives/error.hpp"
#include "collectives/version.hpp"
#include "collectives_bench/options.hpp"
#include "device/cuda_component.hpp"
#include "device/device.hpp"

namespace collectives::bench {
namespace {

using namespace std::chrono_literals;

/// Functions of libcollectives_cuda. The dynamic loader finds this library in the search path of the program. It stays
/// loaded.
struct Component {
  decltype(&collectives_cuda_version) version = nullptr;
  decltype(&collectives_cuda_use) use = nullptr;
  decltype(&collectives_cuda_device) device = nullptr;

  Component() {
    void* const library = ::dlopen(COLLECTIVES_CUDA_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw BadArguments(fmt::format("--buffers device: GPUs cannot be used: {}", ::dlerror()));
    find(library, version, "collectives_cuda_version");
    find(library, use, "collectives_cuda_use");
    find(library, device, "collectives_cuda_device");
    if (version() != collectives::version())
      throw BadArguments(fmt::format("--buffers device: {} is of version {}, the library is {}", COLLECTIVES_CUDA_FILE,
                                     version(), collectives::version()));
  }

 private:
  template <class Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr)
      throw BadArguments(fmt::format("--buffers device: {} lacks {}", COLLECTIVES_CUDA_FILE, name));
  }
};

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace

Gpu::Gpu(Bootstrap& bootstrap) {
  const auto hosts = bootstrap.all_gather(host_name(), Deadline::in(10min));
  const auto self = hosts.begin() + bootstrap.rank();
  const Component component;
  component.use(static_cast<int>(std::count(hosts.begin(), self, *self)));
  char why_not[512] = "";
  device_.reset(component.device(why_not, sizeof why_not));
  if (!device_) throw BadArguments(fmt::format("--buffers device: {}", why_not));
  stream_ = device_->new_stream();
  event_ = device_->new_event();
}

Gpu::~Gpu() {
  device_->end_event(event_);
  device_->end_stream(stream_);
}

void Gpu::wait() {
  device_->record(event_, stream_);
  const auto deadline = std::chrono::steady_clock::now() + 2min;
  // After 20 ms, the wait sleeps between its tests. A sleep delays the end of the wait by up to 0.1 ms, which is 0.5 %
  // of 20 ms.
  for (BoundedYield pause(20ms); !device_->reached(event_); pause.wait()) {
    if (std::chrono::steady_clock::now() > deadline)
      throw Error(Errc::timeout, "the GPU has not performed in two minutes what it was given");
  }
}

void Gpu::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) device_->copy(to, from, bytes, stream_);
  wait();
}

std::byte* Gpu::allocate_image(std::size_t bytes) {
  void* const image = device_->allocate_pinned(std::max<std::size_t>(bytes, 1));
  std::memset(image, 0, bytes);
  return static_cast<std::byte*>(image);
}
void Gpu::free_image(std::byte* image) noexcept { device_->free_pinned(image); }

}  // namespace collectives::bench
