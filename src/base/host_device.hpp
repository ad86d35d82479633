// Code that a processor and a GPU compile alike: what a kernel does with one element, one vector, one digit. Kernels
// call it from their threads, tests from a loop.
#pragma once

#ifdef __CUDACC__
#define COLLECTIVES_SHARED __host__ __device__ __forceinline__
#else
#define COLLECTIVES_SHARED inline
#endif
