// Attributes that make symbols of the library visible to programs. All other symbols are hidden.
#pragma once

#if defined(_WIN32)
#error "collectives is written for Linux"
#endif
#define COLLECTIVES_EXPORT __attribute__((visibility("default")))
// Attribute that hides a class which is declared inside a visible class. Without the attribute, the inner class would
// be visible, too.
#define COLLECTIVES_HIDDEN __attribute__((visibility("hidden")))
