// The function by which the fake of NCCL reports its version. Each library that contains the fake has its own version.
#include <nccl.h>

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION NCCL_VERSION_CODE
#endif

extern const int fake_nccl_version = FAKE_NCCL_VERSION;
