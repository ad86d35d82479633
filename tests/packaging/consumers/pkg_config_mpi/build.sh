#!/bin/sh
# build.sh PROGRAM: PROGRAM of the collectives_mpi that pkg-config finds, by the compiler that MPI brings.
set -eu
cd "$(dirname "$0")"
# shellcheck disable=SC2046  # several words
"${MPICXX:-mpicxx}" -std=c++20 ../mpi_sum.cpp $(pkg-config --cflags --libs 'collectives_mpi >= 0.2') -o "$1"
