// A fake of CUDA's runtime for machines without a GPU: the functions that the library calls, with CUDA's names and
// answers. The sources for GPUs are compiled against these headers and run on a FakeGpuMachine (runtime.cpp). The CPU
// cannot access the GPUs' memory directly, and streams run later than the calls.
//
//   FAKE_CUDA_GPUS   the number of GPUs; 1 if it is not set
#pragma once

#include <cstddef>

#define FAKE_CUDA_API extern "C" __attribute__((visibility("default")))

#define CUDART_VERSION 13000

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorStreamCaptureImplicit = 906
};
using cudaError_t = cudaError;

struct CUstream_st;
struct CUevent_st;
using cudaStream_t = CUstream_st*;
using cudaEvent_t = CUevent_st*;
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaStreamPerThread ((cudaStream_t)0x2)
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocPortable = 1, cudaHostRegisterPortable = 1, cudaIpcMemLazyEnablePeerAccess = 1;

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone, cudaStreamCaptureStatusActive };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  std::size_t totalGlobalMem;
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
struct cudaIpcMemHandle_t {
  char reserved[64];
};

FAKE_CUDA_API const char* cudaGetErrorString(cudaError_t error);
FAKE_CUDA_API cudaError_t cudaGetLastError();
FAKE_CUDA_API cudaError_t cudaDriverGetVersion(int* version);

FAKE_CUDA_API cudaError_t cudaGetDeviceCount(int* count);
FAKE_CUDA_API cudaError_t cudaGetDevice(int* device);
FAKE_CUDA_API cudaError_t cudaSetDevice(int device);
FAKE_CUDA_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
FAKE_CUDA_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
FAKE_CUDA_API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
FAKE_CUDA_API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
FAKE_CUDA_API cudaError_t cudaDeviceSynchronize();

FAKE_CUDA_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer);
FAKE_CUDA_API cudaError_t cudaMalloc(void** memory, std::size_t bytes);
FAKE_CUDA_API cudaError_t cudaFree(void* memory);
FAKE_CUDA_API cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags);
FAKE_CUDA_API cudaError_t cudaFreeHost(void* memory);
FAKE_CUDA_API cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned flags);
FAKE_CUDA_API cudaError_t cudaHostUnregister(void* memory);
FAKE_CUDA_API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* memory);
FAKE_CUDA_API cudaError_t cudaIpcOpenMemHandle(void** memory, cudaIpcMemHandle_t handle, unsigned flags);
FAKE_CUDA_API cudaError_t cudaIpcCloseMemHandle(void* memory);
/// Waits if one side is pageable CPU memory.
FAKE_CUDA_API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                                          cudaStream_t stream);
FAKE_CUDA_API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
FAKE_CUDA_API cudaError_t cudaMemset(void* to, int value, std::size_t bytes);
FAKE_CUDA_API cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);

FAKE_CUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
FAKE_CUDA_API cudaError_t cudaStreamDestroy(cudaStream_t stream);
FAKE_CUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
FAKE_CUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
FAKE_CUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);

FAKE_CUDA_API cudaError_t cudaEventCreate(cudaEvent_t* event);
FAKE_CUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
FAKE_CUDA_API cudaError_t cudaEventDestroy(cudaEvent_t event);
FAKE_CUDA_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
FAKE_CUDA_API cudaError_t cudaEventQuery(cudaEvent_t event);
FAKE_CUDA_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
