// A fake of CUDA's runtime, and of the functions of CUDA's driver that the library uses. The GPUs are those of a
// FakeGpuMachine, which simulates memory and streams on the CPU.
#include <cuda.h>
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/error.hpp"
#include "fakes/gpu/fake_gpu.hpp"
#include "grid.hpp"

namespace {

using collectives::Device;
using collectives::Error;
using collectives::testing::FakeGpuMachine;
using Kind = Device::Kind;

constexpr int kMultiprocessors = 3;  // number of multiprocessors that each fake GPU reports

int gpus() {
  static const int count = [] {
    const char* const told = std::getenv("FAKE_CUDA_GPUS");
    return told == nullptr ? 1 : std::atoi(told);
  }();
  return count;
}
/// Returns the one machine of this process. It is never destroyed, because its streams may be in use until the end.
FakeGpuMachine& machine() {
  static FakeGpuMachine* const one = new FakeGpuMachine(gpus());
  return *one;
}

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
thread_local std::vector<CUcontext> contexts;
std::atomic<std::uint64_t> active = 0;  // GPUs that have a context in this process, one bit each

cudaError_t result(cudaError_t status) {
  if (status != cudaSuccess) last = status;
  return status;
}
bool is_gpu(int device) { return device >= 0 && device < gpus(); }

/// Returns the result of `call`, or `refused` if the machine refuses it.
template <class Call>
cudaError_t attempt(cudaError_t refused, Call&& call) {
  if (gpus() == 0) return result(cudaErrorNoDevice);
  active.fetch_or(std::uint64_t{1} << current);
  try {
    machine().check(current);
  } catch (const Error&) {
    return result(cudaErrorIllegalAddress);
  }
  try {
    return result(call());
  } catch (const Error&) {
    return result(refused);
  }
}

Device::Stream stream_of(cudaStream_t stream) { return stream == cudaStreamLegacy ? nullptr : stream; }

/// Times at which events were reached. A call that stores the time precedes each event in its stream.
struct Times {
  std::mutex mutex;
  std::map<cudaEvent_t, std::shared_ptr<std::chrono::steady_clock::time_point>> of;
};
Times& times() {
  static Times* const all = new Times;
  return *all;
}

struct Peers {
  std::mutex mutex;
  std::set<std::pair<int, int>> enabled;
};
Peers& peers() {
  static Peers* const all = new Peers;
  return *all;
}

CUcontext context_of(int gpu) { return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(gpu + 1)); }
int gpu_of(CUcontext context) { return static_cast<int>(reinterpret_cast<std::uintptr_t>(context)) - 1; }

}  // namespace

namespace fake_cuda {

cudaError_t put(cudaStream_t stream, std::function<void()> work) {
  return attempt(cudaErrorInvalidValue, [&] {
    machine().count_kernel();
    machine().put_untold(current, stream_of(stream), std::move(work));
    return cudaSuccess;
  });
}
cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  const auto size = [](dim3 of) { return std::size_t{of.x} * of.y * of.z; };
  if (size(config.gridDim) == 0 || size(config.blockDim) == 0 || size(config.blockDim) > 1024 ||
      config.dynamicSmemBytes != 0 || config.numAttrs != 0)
    return result(cudaErrorInvalidValue);
  return put(config.stream, [grid = config.gridDim, block = config.blockDim, thread = std::move(thread)] {
    run_grid(grid, block, thread);
  });
}

}  // namespace fake_cuda

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access is already enabled";
    case cudaErrorHostMemoryAlreadyRegistered: return "part or all of the requested memory range is already mapped";
    case cudaErrorHostMemoryNotRegistered: return "pointer does not correspond to a registered memory region";
    case cudaErrorStreamCaptureImplicit: return "operation would make the legacy stream depend on a capturing stream";
  }
  return "unknown error";
}
cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = gpus();
  return result(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return result(gpus() > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (!is_gpu(device)) return result(gpus() > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
  current = device;
  active.fetch_or(std::uint64_t{1} << current);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_gpu(device)) return result(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "stand-in for a GPU");
  std::strcpy(properties->uuid.bytes, "stand-in");
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = std::size_t{1} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!is_gpu(device) || attribute != cudaDevAttrMultiProcessorCount) return result(cudaErrorInvalidValue);
  *value = kMultiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!is_gpu(device) || !is_gpu(peer)) return result(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  if (!is_gpu(peer) || peer == current) return result(cudaErrorInvalidDevice);
  const std::lock_guard lock(peers().mutex);
  return result(peers().enabled.insert({current, peer}).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceSynchronize() {
  return attempt(cudaErrorInvalidValue, [] {
    machine().synchronize(current);
    machine().check(current);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return attempt(cudaErrorInvalidValue, [&] {
    const Device::Memory found = machine().memory_of(pointer);
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(pointer)};
    if (found.kind == Kind::host) return cudaSuccess;
    attributes->type = found.kind == Kind::pinned    ? cudaMemoryTypeHost
                       : found.kind == Kind::managed ? cudaMemoryTypeManaged
                                                     : cudaMemoryTypeDevice;
    attributes->device = found.kind == Kind::device ? found.device : current;
    attributes->devicePointer = const_cast<void*>(pointer);
    return cudaSuccess;
  });
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return attempt(cudaErrorMemoryAllocation, [&] {
    *memory = bytes == 0 ? nullptr : machine().allocate(current, bytes, Kind::device);
    return cudaSuccess;
  });
}
/// Waits for the whole GPU, as CUDA may.
cudaError_t cudaFree(void* memory) {
  return attempt(cudaErrorInvalidValue, [&] {
    if (memory == nullptr) return cudaSuccess;
    const Device::Memory found = machine().memory_of(memory);
    if (found.kind != Kind::device) return cudaErrorInvalidValue;
    machine().synchronize(found.device);
    return machine().free(memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return attempt(cudaErrorMemoryAllocation, [&] {
    *memory = machine().allocate(current, bytes, Kind::pinned);
    return cudaSuccess;
  });
}
cudaError_t cudaFreeHost(void* memory) {
  return attempt(cudaErrorInvalidValue, [&] {
    if (memory == nullptr) return cudaSuccess;
    machine().synchronize(current);
    return machine().free(memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  return attempt(cudaErrorHostMemoryAlreadyRegistered, [&] {
    machine().pin(current, memory, bytes);
    return cudaSuccess;
  });
}
cudaError_t cudaHostUnregister(void* memory) {
  return attempt(cudaErrorHostMemoryNotRegistered, [&] {
    machine().synchronize(current);
    return machine().unpin(memory) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory) {
  return attempt(cudaErrorInvalidValue, [&] {
    const Device::Handle shared = machine().share(current, memory);
    std::memcpy(handle, &shared, sizeof shared);
    return cudaSuccess;
  });
}
cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned) {
  return attempt(cudaErrorInvalidValue, [&] {
    Device::Handle shared;
    std::memcpy(&shared, &handle, sizeof shared);
    *memory = machine().open(current, shared);
    return cudaSuccess;
  });
}
cudaError_t cudaIpcCloseMemHandle(void* memory) {
  return attempt(cudaErrorInvalidValue, [&] {
    machine().synchronize(current);
    return machine().free(memory) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return attempt(cudaErrorInvalidValue, [&] {
    if (bytes == 0) return cudaSuccess;
    const auto of_the_host = [](const void* side) { return machine().memory_of(side).kind == Kind::host; };
    if (!of_the_host(to) && !of_the_host(from)) {
      machine().copy(current, to, from, bytes, stream_of(stream));
      return cudaSuccess;
    }
    FakeGpuMachine::Ranges touched;
    for (const void* side : {static_cast<const void*>(to), from})
      if (!of_the_host(side)) touched.emplace_back(side, bytes);
    machine().put(current, stream_of(stream), touched, [=] { std::memmove(to, from, bytes); });
    machine().synchronize(current, stream_of(stream));
    return cudaSuccess;
  });
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  if (status != cudaSuccess) return status;
  return attempt(cudaErrorInvalidValue, [] {
    machine().synchronize(current, nullptr);
    machine().check(current);
    return cudaSuccess;
  });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return attempt(cudaErrorInvalidValue, [&] {
    machine().put(current, stream_of(stream), {{to, bytes}}, [=] { std::memset(to, value, bytes); });
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return attempt(cudaErrorInvalidValue, [&] {
    *stream = static_cast<cudaStream_t>(machine().new_stream(current));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    if (stream == nullptr || !machine().is_stream(stream)) return cudaErrorInvalidResourceHandle;
    machine().end_stream(current, stream);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    machine().wait(current, stream_of(stream), event);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    *status =
        machine().capturing(current, stream_of(stream)) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return attempt(cudaErrorInvalidValue, [&] {
    *event = static_cast<cudaEvent_t>(machine().new_event(current));
    const std::lock_guard lock(times().mutex);
    times().of[*event] = std::make_shared<std::chrono::steady_clock::time_point>();
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    {
      const std::lock_guard lock(times().mutex);
      if (times().of.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    }
    machine().end_event(event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    std::shared_ptr<std::chrono::steady_clock::time_point> time;
    {
      const std::lock_guard lock(times().mutex);
      time = times().of.at(event);
    }
    machine().put(current, stream_of(stream), {}, [time] { *time = std::chrono::steady_clock::now(); });
    machine().record(current, event, stream_of(stream));
    return cudaSuccess;
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return attempt(cudaErrorInvalidResourceHandle,
                 [&] { return machine().reached(current, event) ? cudaSuccess : cudaErrorNotReady; });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return attempt(cudaErrorInvalidResourceHandle, [&] {
    if (!machine().reached(current, from) || !machine().reached(current, to)) return cudaErrorNotReady;
    const std::lock_guard lock(times().mutex);
    *milliseconds = std::chrono::duration<float, std::milli>(*times().of.at(to) - *times().of.at(from)).count();
    return cudaSuccess;
  });
}

// ---- the driver ----

FAKE_CUDA_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                                 CUdeviceptr pointer) {
  const auto* const address = reinterpret_cast<const void*>(pointer);
  const Device::Memory memory = machine().memory_of(address);
  const Device::Allocation allocation = machine().allocation_of(address);
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(data[i]) = memory.kind == Kind::host     ? CUmemorytype{}
                                               : memory.kind == Kind::device ? CU_MEMORYTYPE_DEVICE
                                                                             : CU_MEMORYTYPE_HOST;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<unsigned long long*>(data[i]) = allocation.buffer_id; break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(data[i]) = memory.kind == Kind::managed; break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(data[i]) = reinterpret_cast<CUdeviceptr>(allocation.base);
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<std::size_t*>(data[i]) = allocation.bytes; break;
    }
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  if (!machine().is_stream(stream)) return CUDA_ERROR_INVALID_HANDLE;
  *context = context_of(machine().gpu_of(current, stream));
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (contexts.empty()) return CUDA_ERROR_INVALID_VALUE;
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = contexts.empty() ? current : gpu_of(contexts.back());
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = (active.load() >> current & 1) != 0 ? context_of(current) : nullptr;
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = gpus();
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
FAKE_CUDA_EXPORT CUresult cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = (active.load() >> device & 1) != 0;
  return CUDA_SUCCESS;
}

}  // extern "C"
