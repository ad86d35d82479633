# !/bin/sh build.sh PROGRAM: builds PROGRAM by MPI's compiler wrapper, with the library `collectives_mpi` that
# pkg-config finds.
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2046  # several words
"${MPICXX:-mpicxx}" -std=c++20 ../mpi_sum.cpp $(pkg-config --cflags --libs 'collectives_mpi >= 0.2') -o "$1"
