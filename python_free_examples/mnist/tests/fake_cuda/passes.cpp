#include "gpu/passes.cu"
