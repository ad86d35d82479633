# Read by ctest itself: what every test finds in its environment.

# Tests neither stand on numbers measured on this machine nor leave any behind.
set(ENV{COLLECTIVES_TUNING} default)
