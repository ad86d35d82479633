// Runs a grid, all threads of one CUDA kernel, on the CPU.
#pragma once

#include <functional>

#include "cuda_runtime.h"

namespace fake_cuda {

/// Runs `thread` once for each thread of each block, blocks one after the other.
///
/// The threads of a block run in turns. A thread runs until it ends or reaches a __syncthreads(); then the next thread
/// begins. When all threads have reached the barrier, they continue. Every second block begins with its last thread,
/// and every second barrier reverses the order, so that tests detect a result that depends on the order. The process
/// ends if threads wait at two barriers at once, which is undefined on a GPU.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

}  // namespace fake_cuda
