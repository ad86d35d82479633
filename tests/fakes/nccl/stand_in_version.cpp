// The version that the stand-in for NCCL says it has.
#include <nccl.h>

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION NCCL_VERSION_CODE
#endif

extern const int stand_in_version = STAND_IN_VERSION;
