// Marks of the symbols that the shared library exports. All other symbols are hidden.
#pragma once

#if defined(_WIN32)
#error "collectives is written for Linux"
#endif
#define COLLECTIVES_EXPORT __attribute__((visibility("default")))
// Mark of a hidden class that an exported class declares. Without the mark it would be exported as well.
#define COLLECTIVES_HIDDEN __attribute__((visibility("hidden")))
