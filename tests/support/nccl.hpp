// The stand-in for NCCL (fakes/nccl/stand_in.cpp) for tests, on pretended GPUs.
#pragma once

#include <dlfcn.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "collectives/deadline.hpp"
#include "cuda/nccl_library.hpp"
#include "fakes/gpu/pretended_device.hpp"
#include "fakes/nccl/paths.hpp"
#include "fakes/nccl/stand_in.hpp"

namespace collectives::testing {

inline const nccl::Library& loaded(const char* path) {
  std::string why_not;
  const nccl::Library* const found = nccl::load_library(path, why_not);
  if (found == nullptr) throw std::runtime_error(why_not);
  return *found;
}
inline const nccl::Library& stand_in() {
  static const nccl::Library& library = loaded(kStandIn);
  return library;
}
inline const nccl::Library& stand_in_without_memory() {
  static const nccl::Library& library = loaded(kWithoutMemory);
  return library;
}

/// While it lives, the stand-in uses the streams of those GPUs.
class StandIn {
 public:
  explicit StandIn(PretendedGpus& gpus) {
    function<StandInSetStreams>("stand_in_streams")(
        {.current_gpu = [] { return PretendedGpus::current(); },
         .put =
             [&gpus](int gpu, void* stream, std::vector<std::pair<void*, std::size_t>> touched,
                     std::function<void()> entry) {
               const int own = PretendedGpus::current();
               PretendedGpus::set_current(gpu);
               gpus.put(stream, std::move(touched), std::move(entry));
               PretendedGpus::set_current(own);
             },
         .take =
             [&gpus](std::size_t bytes) {
               void* const memory = gpus.allocate(bytes);
               gpus.take_from_pool(memory);
               return memory;
             },
         .give_back = [&gpus](void* memory) { gpus.free(memory); }});
  }
  ~StandIn() {
    function<StandInFail>("stand_in_fail")("");
    function<StandInSetStreams>("stand_in_streams")({});
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  /// See StandInFail.
  static void fail(const char* what) { function<StandInFail>("stand_in_fail")(what); }
  static void hold_aborts(bool hold) { function<StandInHoldAborts>("stand_in_hold_aborts")(hold); }
  static std::size_t alive() { return function<StandInAlive>("stand_in_alive")(); }
  /// Waits until none is alive, as some may be aborted in the background; false if that does not come.
  static bool all_end() {
    for (const Deadline patience = Deadline::in(std::chrono::seconds(20)); alive() > 0;) {
      if (patience.passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  static std::size_t registered() { return function<StandInRegistered>("stand_in_registered")(); }
  static std::size_t in_registered() { return function<StandInInRegistered>("stand_in_in_registered")(); }

 private:
  template <class F>
  static F function(const char* name) {
    (void)stand_in();
    void* const handle = ::dlopen(kStandIn, RTLD_NOW | RTLD_NOLOAD);
    const auto found = reinterpret_cast<F>(::dlsym(handle, name));
    ::dlclose(handle);
    return found;
  }
};

}  // namespace collectives::testing
