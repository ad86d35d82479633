// Compiles the forward and backward passes of the trainer for GPUs with replacements of CUDA, cuBLAS and cuDNN that run
// on a CPU, for tests.
#include "gpu/passes.cu"
