// Compiles the code of the trainer for GPUs with a replacement of CUDA that runs on a CPU, for tests.
#include "gpu/cuda_device.cu"
