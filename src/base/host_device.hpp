// Marker for functions that are compiled for processors and GPUs alike. They process one element, one vector
// or one digit. Kernels call them from GPU threads, tests from a loop.
#pragma once

#ifdef __CUDACC__
#define COLLECTIVES_SHARED __host__ __device__ __forceinline__
#else
#define COLLECTIVES_SHARED inline
#endif
