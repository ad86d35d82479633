// The version that the library in the place of NCCL reports.
#include <nccl.h>

#ifndef FAKE_NCCL_VERSION
#define FAKE_NCCL_VERSION NCCL_VERSION_CODE
#endif

extern const int fake_nccl_version = FAKE_NCCL_VERSION;
