#include "fakes/nccl/paths.hpp"

namespace collectives::testing {

const char* const kStandIn = STAND_IN_DIRECTORY "/libnccl_stand_in.so";
const char* const kWithoutMemory = STAND_IN_DIRECTORY "/libnccl_without_memory.so";
const char* const kThatLacks = STAND_IN_DIRECTORY "/libnccl_that_lacks.so";
const char* const kThatIsOld = STAND_IN_DIRECTORY "/libnccl_that_is_old.so";
const char* const kOfTomorrow = STAND_IN_DIRECTORY "/libnccl_of_tomorrow.so";

}  // namespace collectives::testing
