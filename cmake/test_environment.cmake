# ctest reads this file. It sets the environment of every test.

# Tests neither use nor store numbers measured on this machine.
set(ENV{COLLECTIVES_TUNING} default)
