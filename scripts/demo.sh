#!/usr/bin/env bash
# Installs missing packages, builds, benchmarks every backend on four ranks, trains on four ranks, and plots.
#
#   MNIST_DIR=DIR scripts/demo.sh   trains on the real MNIST files; without MNIST_DIR on synthetic digits
set -eu
cd "$(dirname "$0")/.."
scripts/install_packages.sh

results=build/demo
mkdir -p "$results"
echo "== Building (log: build/release/build.log)"
mkdir -p build/release
programs=(collectives_bench collectives_info collectives_run mnist_trainer)
{ cmake --preset release && cmake --build --preset release -j "$(nproc)" --target "${programs[@]}"; } \
  >build/release/build.log 2>&1 ||
  { tail -n 40 build/release/build.log; exit 1; }
bin=$PWD/build/release/bin

# mpirun refuses root, and more ranks than cores, without these variables.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_mpi_yield_when_idle=1

echo
echo "== What this machine can do"
"$bin/collectives_info"

echo
echo "== Four ranks reduce, verify and time"
mpirun -np 4 "$bin/collectives_bench" all_reduce --backend ring,hierarchical,reduce_to_one,auto \
  --max-bytes 4M --factor 8 --json "$results/bench.jsonl" --csv "$results/bench.csv"

echo
echo "== Four ranks train"
data=(--synthetic-train 12000 --synthetic-test 2000)
[ -z "${MNIST_DIR:-}" ] || data=(--data "$MNIST_DIR")
mpirun -np 4 "$bin/mnist_trainer" --model cnn --optimizer adam --schedule lecture --epochs 3 --batch 64 "${data[@]}" \
  --json "$results/training.jsonl" --csv "$results/training.csv" --plot "$results/training.svg"

echo
echo "== What happened"
echo "Four ranks reduced vectors with every backend, verified them, and trained a convolutional network."
echo "Benchmark: $results/bench.jsonl, $results/bench.csv"
echo "Training:  $results/training.jsonl, $results/training.csv, plot $results/training.svg"
