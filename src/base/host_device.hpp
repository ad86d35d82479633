// Macro COLLECTIVES_SHARED, which marks functions that are compiled for CPUs and for GPUs. Each of these functions
// processes one element or a few. GPU kernels call these functions in each thread. Tests on a CPU call them in a loop.
#pragma once

#ifdef __CUDACC__
#define COLLECTIVES_SHARED __host__ __device__ __forceinline__
#else
#define COLLECTIVES_SHARED inline
#endif
