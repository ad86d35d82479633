// Settings of the thread sanitizer for the tests: it ignores data races inside oneDNN. oneDNN is not built for the
// sanitizer, which therefore does not see its locks.
#include <collectives/export.hpp>

extern "C" COLLECTIVES_EXPORT const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:libdnnl.so\nrace:^dnnl::\n"; }
