// Compiles the trainer's GPU device with the stand-in for CUDA.
#include "gpu/cuda_device.cu"
