// oneDNN is not built for the thread sanitizer. The sanitizer therefore does not see the locks of the cache of
// primitives that ranks share as threads. Races inside oneDNN are not reported.
#include <collectives/export.hpp>

extern "C" COLLECTIVES_EXPORT const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:libdnnl.so\nrace:^dnnl::\n"; }
