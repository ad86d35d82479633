// Compiles the trainer's GPU passes with the stand-ins for CUDA, cuBLAS and cuDNN.
#include "gpu/passes.cu"
