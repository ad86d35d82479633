// Helpers for tests on fake GPUs that use the fake of NCCL (fakes/nccl/fake_nccl.cpp).
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "collectives/deadline.hpp"
#include "cuda/nccl_library.hpp"
#include "fakes/gpu/fake_device.hpp"
#include "fakes/nccl/fake_nccl.hpp"
#include "fakes/nccl/paths.hpp"

namespace collectives::testing {

inline const nccl::Library& loaded(const char* path) {
  std::string why_not;
  const nccl::Library* const found = nccl::load_library(path, why_not);
  if (found == nullptr) throw std::runtime_error(why_not);
  return *found;
}
inline const nccl::Library& fake_nccl() {
  static const nccl::Library& library = loaded(kFakeNccl);
  return library;
}
inline const nccl::Library& fake_nccl_without_memory() {
  static const nccl::Library& library = loaded(kWithoutMemory);
  return library;
}

/// Makes the fake of NCCL use the streams of these GPUs while this object exists.
class FakeNccl {
 public:
  explicit FakeNccl(FakeGpus& gpus) {
    function<FakeNcclSetStreams>("fake_nccl_streams")(
        {.current_gpu = [] { return FakeGpus::current(); },
         .put =
             [&gpus](int gpu, void* stream, std::vector<std::pair<void*, std::size_t>> touched,
                     std::function<void()> entry) {
               const int own = FakeGpus::current();
               FakeGpus::set_current(gpu);
               gpus.put(stream, std::move(touched), std::move(entry));
               FakeGpus::set_current(own);
             },
         .take =
             [&gpus](std::size_t bytes) {
               void* const memory = gpus.allocate(bytes);
               gpus.take_from_pool(memory);
               return memory;
             },
         .give_back = [&gpus](void* memory) { gpus.free(memory); }});
  }
  ~FakeNccl() {
    function<FakeNcclFail>("fake_nccl_fail")("");
    function<FakeNcclSetStreams>("fake_nccl_streams")({});
  }
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  /// See FakeNcclFail.
  static void fail(const char* what) { function<FakeNcclFail>("fake_nccl_fail")(what); }
  static void hold_aborts(bool hold) { function<FakeNcclHoldAborts>("fake_nccl_hold_aborts")(hold); }
  static std::size_t alive() { return function<FakeNcclAlive>("fake_nccl_alive")(); }
  /// Waits until no communicator is alive, because some may be aborted in the background. Returns false at the
  /// deadline.
  static bool all_end() {
    for (const Deadline patience = Deadline::in(std::chrono::seconds(20)); alive() > 0;) {
      if (patience.passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  static std::size_t registered() { return function<FakeNcclRegistered>("fake_nccl_registered")(); }
  static std::size_t in_registered() { return function<FakeNcclInRegistered>("fake_nccl_in_registered")(); }

 private:
  template <class F>
  static F function(const char* name) {
    (void)fake_nccl();
    void* const handle = ::dlopen(kFakeNccl, RTLD_NOW | RTLD_NOLOAD);
    const auto found = reinterpret_cast<F>(::dlsym(handle, name));
    ::dlclose(handle);
    return found;
  }
};

}  // namespace collectives::testing
