// Settings of the thread sanitizer for the tests. The sanitizer ignores data races inside the library oneDNN. Reason:
// oneDNN is not compiled for the sanitizer, so the sanitizer does not see its locks and reports false races.
#include <collectives/export.hpp>

extern "C" COLLECTIVES_EXPORT const char* __tsan_default_suppressions();
extern "C" const char* __tsan_default_suppressions() { return "race:libdnnl.so\nrace:^dnnl::\n"; }
