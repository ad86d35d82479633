// A grid on a processor.
#pragma once

#include <functional>

#include "cuda_runtime.h"

namespace stand_in {

/// Runs `thread` once for each thread of each block, blocks one after the other. Threads of a block run in turns: one
/// goes on until it ends or comes to a __syncthreads(), the next begins, and when all have come there they go on. Every
/// second block begins with its last thread, and every second time that threads go on they do in the opposite order, so
/// that a result that depends on the order is seen to. Ends the process where
/// they wait in two places at once, which a GPU does not promise to survive.
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

}  // namespace stand_in
