// Macro COLLECTIVES_SHARED, which marks functions that are compiled both for CPUs and for GPUs. Each of these functions
// processes one or a few elements of a vector. On a GPU, each thread of a kernel calls them. On a CPU, loops and tests
// call them.
#pragma once

#ifdef __CUDACC__
#define COLLECTIVES_SHARED __host__ __device__ __forceinline__
#else
#define COLLECTIVES_SHARED inline
#endif
