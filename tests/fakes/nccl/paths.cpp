// Paths of the libraries that contain a fake of NCCL.
#include "fakes/nccl/paths.hpp"

namespace collectives::testing {

const char* const kFakeNccl = FAKE_NCCL_DIRECTORY "/libfake_nccl.so";
const char* const kWithoutMemory = FAKE_NCCL_DIRECTORY "/libnccl_without_memory.so";
const char* const kThatLacks = FAKE_NCCL_DIRECTORY "/libnccl_that_lacks.so";
const char* const kThatIsOld = FAKE_NCCL_DIRECTORY "/libnccl_that_is_old.so";
const char* const kOfTomorrow = FAKE_NCCL_DIRECTORY "/libnccl_of_tomorrow.so";

}  // namespace collectives::testing
