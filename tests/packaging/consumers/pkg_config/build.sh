# !/bin/sh build.sh PROGRAM: builds PROGRAM with the library `collectives` that pkg-config finds.
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2046  # several words
"${CXX:-c++}" -std=c++20 ../sum.cpp $(pkg-config --cflags --libs 'collectives >= 0.1') -o "$1"
