// Implementation of Device, the interface to one GPU, by CUDA.
//
// Most functions make a few calls of CUDA's runtime library, and convert an error of CUDA to an Error. Some information
// is available only from CUDA's driver library. The runtime library has already loaded the driver library. This file
// therefore looks up functions of the driver by their names.
#include "cuda/device.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "collectives/error.hpp"
#include "cuda/kernels.hpp"
#if COLLECTIVES_HAVE_NCCL
#include "cuda/nccl_communicator.hpp"
#endif

namespace collectives::cuda {
namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // Clears the error. Otherwise the next caller of CUDA would receive it.
  throw Error(Errc::system, fmt::format("CUDA: {}: {}", what, cudaGetErrorString(result)));
}

/// Functions of the driver library. A pointer is null if the driver is too old to have the function.
struct Driver {
  decltype(&::cuPointerGetAttributes) pointer_attributes = nullptr;
  decltype(&::cuStreamGetCtx) context_of_stream = nullptr;
  decltype(&::cuCtxPushCurrent) push = nullptr;
  decltype(&::cuCtxPopCurrent) pop = nullptr;
  decltype(&::cuCtxGetDevice) device_of_context = nullptr;

  Driver() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    };
    find(pointer_attributes, "cuPointerGetAttributes");
    find(context_of_stream, "cuStreamGetCtx");
    find(push, "cuCtxPushCurrent_v2");
    find(pop, "cuCtxPopCurrent_v2");
    find(device_of_context, "cuCtxGetDevice");
  }
};
const Driver& driver() {
  static const Driver the_driver;
  return the_driver;
}

/// Makes a GPU current to this thread while the object exists. CUDA calls of this thread then apply to this GPU, and do
/// not disturb a CUDA graph that another thread is capturing.
class Current {
 public:
  explicit Current(int gpu) {
    check(cudaGetDevice(&before_), "asking for the current GPU");
    if (before_ != gpu) check(cudaSetDevice(gpu), "making a GPU current");
    changed_ = before_ != gpu;
    cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  ~Current() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    if (changed_) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

cudaStream_t stream_of(Device::Stream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(Device::Event event) { return static_cast<cudaEvent_t>(event); }

/// Calls a function while `gpu` is current. Otherwise CUDA might create a context on another GPU for the call. Ignores
/// errors.
template <class Call>
void quietly(int gpu, Call&& call) noexcept {
  try {
    const Current current(gpu);
    call();
  } catch (const Error&) {
  }
}

cudaDeviceProp properties_of(int gpu) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, gpu), "asking what GPU it is");
  return properties;
}

Device::Identity identity_of(const cudaDeviceProp& properties) {
  Device::Identity identity;
  static_assert(sizeof identity == sizeof properties.uuid.bytes);
  std::memcpy(identity.data(), properties.uuid.bytes, sizeof identity);
  return identity;
}

/// Returns the number of the GPU that is current to this thread.
int current_number() {
  int number = 0;
  check(cudaGetDevice(&number), "asking for the current GPU");
  return number;
}

class GpuPeerAccess final : public Device::PeerAccess {
 public:
  GpuPeerAccess(int number, const Device::Identity& identity) : number_(number), identity_(identity) {}

  std::string enable(const Device::Identity& other) override {
    if (other == identity_) return "";
    const Current current(number_);
    int gpus = 0;
    check(cudaGetDeviceCount(&gpus), "counting GPUs");
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (identity_of(properties_of(gpu)) != other) continue;
      int can = 0;
      check(cudaDeviceCanAccessPeer(&can, number_, gpu), "asking whether GPUs reach one another");
      if (can == 0) return fmt::format("GPU {} has no way to the memory of GPU {}", number_, gpu);
      const cudaError_t result = cudaDeviceEnablePeerAccess(gpu, 0);
      if (result != cudaErrorPeerAccessAlreadyEnabled) check(result, "letting GPUs reach one another");
      cudaGetLastError();
      return "";
    }
    return fmt::format("GPU {} cannot reach a GPU that this process does not see; see CUDA_VISIBLE_DEVICES", number_);
  }

  Device::Handle share(void* base) override {
    const Current current(number_);
    cudaIpcMemHandle_t shared{};
    check(cudaIpcGetMemHandle(&shared, base), "sharing memory of the GPU");
    Device::Handle handle;
    static_assert(sizeof handle == sizeof shared);
    std::memcpy(handle.data(), &shared, sizeof shared);
    return handle;
  }
  void* open(const Device::Handle& handle) override {
    const Current current(number_);
    cudaIpcMemHandle_t shared{};
    std::memcpy(&shared, handle.data(), sizeof shared);
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, shared, cudaIpcMemLazyEnablePeerAccess), "opening a peer's memory");
    return memory;
  }
  void close(void* opened) noexcept override {
    quietly(number_, [&] { cudaIpcCloseMemHandle(opened); });
  }

 private:
  const int number_;
  const Device::Identity identity_;
};

class GpuKernels final : public Device::Kernels {
 public:
  explicit GpuKernels(int number) : number_(number) {}

  void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
            std::size_t count, int finish_ranks, Device::Stream stream) override {
    const Current current(number_);
    cuda::fold(op, type, sources, outs, count, finish_ranks, stream);
  }
  void cast(ConstBuffer from, Buffer to, Device::Stream stream) override {
    const Current current(number_);
    cuda::cast(from, to, stream);
  }
  void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                         Buffer wire, float* seen, Device::Stream stream) override {
    const Current current(number_);
    cuda::cast_reduce_scale(type, sources, count, divisor, wire, seen, stream);
  }
  std::size_t select_scratch_bytes(std::size_t n, std::size_t k) const override {
    const Current current(number_);
    return cuda::select_scratch_bytes(n, k);
  }
  void select(const Device::SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
              Device::Stream stream) override {
    const Current current(number_);
    cuda::select(input, k, indices, values, scratch, stream);
  }
  std::size_t sparse_scratch_bytes(std::size_t n) const override { return cuda::sparse_scratch_bytes(n); }
  void sparse_add(std::span<const Device::Term> terms, float divisor, float* sum, void* scratch,
                  std::uint32_t* union_size, Device::Stream stream) override {
    const Current current(number_);
    cuda::sparse_add(terms, divisor, sum, scratch, union_size, stream);
  }

 private:
  const int number_;
};

class Gpu final : public Device {
 public:
  Gpu() : Gpu(current_number()) {}

  PeerAccess& peer_access() noexcept override { return peer_access_; }
  Kernels& kernels() noexcept override { return kernels_; }

  int number() const override { return number_; }
  void make_current() noexcept override { cudaSetDevice(number_); }
  std::string name() const override { return name_; }
  Identity identity() const override { return identity_; }

  Memory memory_of(const void* address) const override {
    const Current current(number_);
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, address), "asking whose memory it is");
    switch (found.type) {
      case cudaMemoryTypeHost: return {Kind::pinned};
      case cudaMemoryTypeManaged: return {Kind::managed};
      case cudaMemoryTypeDevice: return {Kind::device, found.device};
      default: return {};
    }
  }
  Allocation allocation_of(const void* address) const override {
    if (driver().pointer_attributes == nullptr) return {};
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    unsigned long long id = 0;
    CUmemorytype type{};
    unsigned managed = 0;
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_BUFFER_ID};
    void* told[] = {&type, &managed, &base, &bytes, &id};
    const Current current(number_);
    const CUresult result =
        driver().pointer_attributes(std::size(asked), asked, told, reinterpret_cast<CUdeviceptr>(address));
    if (result != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE || managed != 0) return {};
    return {reinterpret_cast<std::byte*>(base), bytes, id};
  }
  void* allocate(std::size_t bytes) override {
    const Current current(number_);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "taking memory of the GPU");
    return memory;
  }
  void* allocate_pinned(std::size_t bytes) override {
    const Current current(number_);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "taking pinned memory");
    return memory;
  }
  void free(void* memory) noexcept override {
    quietly(number_, [&] { cudaFree(memory); });
  }
  void free_pinned(void* memory) noexcept override {
    quietly(number_, [&] { cudaFreeHost(memory); });
  }
  void pin(void* memory, std::size_t bytes) override {
    const Current current(number_);
    check(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), "pinning memory");
  }
  void unpin(void* memory) noexcept override {
    quietly(number_, [&] { cudaHostUnregister(memory); });
  }

  Stream new_stream() override {
    const Current current(number_);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    return stream;
  }
  void end_stream(Stream stream) noexcept override {
    quietly(number_, [&] { cudaStreamDestroy(stream_of(stream)); });
  }
  int device_of(Stream stream) const override {
    int gpu = number_;
    if (stream_of(stream) == cudaStreamPerThread)
      throw Error(Errc::invalid_argument,
                  "cudaStreamPerThread is another stream in every thread: pass one of your own");
    // Each GPU has its own default stream.
    if (stream == nullptr || stream_of(stream) == cudaStreamLegacy) {
      check(cudaGetDevice(&gpu), "asking for the current GPU");
      return gpu;
    }
    CUcontext context = nullptr;
    if (driver().context_of_stream == nullptr || driver().device_of_context == nullptr ||
        driver().context_of_stream(stream_of(stream), &context) != CUDA_SUCCESS)
      throw Error(Errc::invalid_argument, "the stream is none that CUDA knows");
    CUdevice device = 0;
    driver().push(context);
    const bool told = driver().device_of_context(&device) == CUDA_SUCCESS;
    driver().pop(&context);
    return told ? device : number_;
  }
  bool capturing(Stream stream) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t result = cudaStreamIsCapturing(stream_of(stream), &status);
    if (result != cudaErrorStreamCaptureImplicit) check(result, "asking whether a stream is captured");
    cudaGetLastError();
    return result == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
  }

  Event new_event() override {
    const Current current(number_);
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    return event;
  }
  void end_event(Event event) noexcept override {
    quietly(number_, [&] { cudaEventDestroy(event_of(event)); });
  }
  void record(Event event, Stream stream) override {
    const Current current(number_);
    check(cudaEventRecord(event_of(event), stream_of(stream)), "recording an event");
  }
  bool reached(Event event) override {
    const Current current(number_);
    const cudaError_t result = cudaEventQuery(event_of(event));
    if (result == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(result, "what the GPU was given to do");
    return true;
  }
  void wait(Stream stream, Event event) override {
    const Current current(number_);
    check(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "letting a stream wait");
  }

  void clear(void* memory, std::size_t bytes, Stream stream) override {
    const Current current(number_);
    check(cudaMemsetAsync(memory, 0, bytes, stream_of(stream)), "clearing");
  }
  void copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    const Current current(number_);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)), "copying");
  }

  const Nccl* nccl(std::string& why_not) override {
#if COLLECTIVES_HAVE_NCCL
    static const nccl::Library* const library = nccl::find_library(why_not);
    static const std::unique_ptr<nccl::Loaded> loaded =
        library != nullptr ? std::make_unique<nccl::Loaded>(*library) : nullptr;
    if (loaded == nullptr) nccl::find_library(why_not);
    return loaded.get();
#else
    why_not = "this build has no NCCL, which was not found when it was made";
    return nullptr;
#endif
  }
  void while_current(const std::function<void()>& work) override {
    const Current current(number_);
    work();
  }

 private:
  explicit Gpu(int number) : Gpu(number, properties_of(number)) {}
  Gpu(int number, const cudaDeviceProp& properties)
      : number_(number),
        name_(properties.name),
        identity_(identity_of(properties)),
        peer_access_(number_, identity_),
        kernels_(number_) {
    check(cudaFree(nullptr), "starting the GPU");
  }

  const int number_;
  const std::string name_;
  const Identity identity_;
  GpuPeerAccess peer_access_;
  GpuKernels kernels_;
};

/// Returns the version as text, for example "13.0".
std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

void use_gpu(int number) noexcept {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) == cudaSuccess && gpus > 0) cudaSetDevice(number % gpus);
  cudaGetLastError();
}

std::unique_ptr<Device> current_gpu(std::string& why_not) {
  int its = 0, gpus = 0;
  cudaDriverGetVersion(&its);
  const cudaError_t result = cudaGetDeviceCount(&gpus);
  cudaGetLastError();
  if (its == 0)
    why_not = "there is no NVIDIA driver here (libcuda.so.1)";
  else if (result == cudaErrorInsufficientDriver)
    why_not = fmt::format("the NVIDIA driver is for CUDA {}, and this library for {}", version_text(its),
                          version_text(CUDART_VERSION));
  else if (result != cudaSuccess || gpus == 0)
    why_not = fmt::format("there is no GPU to be seen: {}; see CUDA_VISIBLE_DEVICES",
                          result == cudaSuccess ? "the driver counts none" : cudaGetErrorString(result));
  else
    return std::make_unique<Gpu>();
  return nullptr;
}

}  // namespace collectives::cuda
