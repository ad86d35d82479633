// What is public is marked; everything else stays inside the shared library.
#pragma once

#if defined(_WIN32)
#error "collectives is written for Linux"
#endif
#define COLLECTIVES_EXPORT __attribute__((visibility("default")))
// What an exported class declares is exported with it, so the classes inside that only it may see are marked too.
#define COLLECTIVES_HIDDEN __attribute__((visibility("hidden")))
