#include "gpu/cuda_device.cu"
