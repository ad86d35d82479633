#!/usr/bin/env bash
# Builds and runs everything that needs a GPU, on a machine with CMake, a C++ compiler and nvcc. Nothing is installed or
# downloaded there. The required libraries come from build/gpu_parts, which a Debian machine fills. Not yet run on a
# GPU.
#
#   scripts/gpu.sh --pack               on Debian: fills build/gpu_parts from the installed packages
#   scripts/gpu.sh --build              builds in build/gpu, with build/gpu_parts if it is there
#   scripts/gpu.sh [SECTION...]         builds, runs all sections or these, prints one table: build/gpu/table.txt
#   scripts/gpu.sh --run [SECTION...]   runs what was built here or on an equal machine, and prints the table
#
#   tests        compares the kernels with the processor's loops, and runs the conformance suite with every backend
#   collectives  runs and verifies every collective, backend, type and op by 2, 4 and 8 processes on one GPU, to
#                256 MiB; with codecs and top-k; with NCCL if it is installed
#   kernels      gpu_bench, and torch.topk if torch is installed
#   training     steps on the GPU beside the processor's; with MNIST_DIR, to 99 % test accuracy
#   sanitizer    the four tools of compute-sanitizer on the kernels, and on collectives
#
#   GPU_BUILD=DIR        another build folder
#   GPU_MOST=BYTES       length of the longest vectors
#   GPU_RANKS='2 4 8'    numbers of processes
#   GPU_TYPES=LIST       element types [all]
#
# The exit status is 1 if a build or a test fails, and 2 if the script cannot start. It is 77 if no CUDA device exists
# and every test and benchmark was skipped, and 0 otherwise.
set -eu -o pipefail
cd "$(dirname "$0")/.."

parts=$PWD/build/gpu_parts
build=$(realpath -m "${GPU_BUILD:-build/gpu}")
most=${GPU_MOST:-256M}
read -ra processes <<<"${GPU_RANKS:-2 4 8}"
most_mib=60  # of the parts

fail() {
  echo "gpu.sh: $1" >&2
  exit 2
}

# Copies headers, libraries and CMake packages in their layout below /usr. zlib is copied as an archive only. A program
# that starts with these libraries in its path would otherwise find an older zlib than it was built with.
pack() {
  command -v dpkg-query >/dev/null || fail '--pack takes the parts from Debian packages, and there is no dpkg-query here'
  local packages=(libfmt-dev libfmt9 nlohmann-json3-dev libhwy-dev libhwy1 libgtest-dev libcli11-dev
                  libdnnl-dev libdnnl2 ocl-icd-libopencl1 zlib1g-dev)
  local package path missing=()
  for package in "${packages[@]}"; do
    dpkg-query -L "$package" >/dev/null 2>&1 || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] || fail "install ${missing[*]} first (scripts/install_packages.sh)"
  rm -rf "$parts"
  mkdir -p "$parts"
  for package in "${packages[@]}"; do
    dpkg-query -L "$package" | while read -r path; do
      case "$path" in
        */libz.so) continue ;;
        */include/* | */lib/* | */share/cmake/*) ;;
        *) continue ;;
      esac
      [ -f "$path" ] || [ -L "$path" ] || continue
      [ ! -d "$path" ] || continue
      local to=$parts/${path#/}
      to=${to/gpu_parts\/usr\//gpu_parts/}
      mkdir -p "$(dirname "$to")"
      cp -P "$path" "$to"
    done
  done
  local mib
  mib=$(du -sm "$parts" | cut -f1)
  [ "$mib" -le $most_mib ] || fail "the parts are $mib MiB, and $most_mib may be"
  echo "build/gpu_parts: $mib MiB of ${#packages[@]} packages"
}

# Prints the folders in which pip installed NVIDIA's libraries, for machines with cuDNN or NCCL from pip only.
pip_folders() {
  local folder
  command -v python3 >/dev/null || return 0
  python3 -c 'import sys; print("\n".join(sys.path))' | while read -r folder; do
    for folder in "$folder"/nvidia/*/; do
      [ ! -d "$folder/include" ] || echo "${folder%/}"
    done
  done
}

build() {
  local tool
  for tool in cmake c++ nvcc; do
    command -v $tool >/dev/null || [ -x "/usr/local/cuda/bin/$tool" ] || fail "there is no $tool here"
  done
  command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
  local options=() prefixes=$parts folder
  ! command -v ninja >/dev/null || options=(-G Ninja)
  ! nvidia-smi -L >/dev/null 2>&1 || options+=(-D CMAKE_CUDA_ARCHITECTURES=native)  # halves the build time
  while read -r folder; do prefixes="$prefixes;$folder"; done < <(pip_folders)

  mkdir -p "$build"
  echo "== Building (log: build/gpu/build.log)"
  if ! cmake -B "$build" -S . "${options[@]}" -D CMAKE_BUILD_TYPE=Release -D COLLECTIVES_WITH_MPI=OFF \
    -D COLLECTIVES_WITH_UCX=OFF -D CMAKE_PREFIX_PATH="$prefixes" >"$build/build.log" 2>&1; then
    tail -n 30 "$build/build.log" >&2
    echo "gpu.sh: it cannot be configured; are build/gpu_parts here (scripts/gpu.sh --pack on a Debian machine)?" >&2
    exit 2
  fi
  grep -E '^-- collectives:' "$build/build.log" || true
  grep -q 'CUDA ON' "$build/build.log" || fail 'CMake finds no CUDA toolkit'
  local targets=(gpu_bench collectives_run collectives_bench collectives_info collectives_cuda)
  mapfile -t -O ${#targets[@]} targets < <(cmake --build "$build" --target help |
    grep -oE '\b(cuda_kernels_test|cuda_backend_test|mnist_test|mnist_trainer|mnist_cuda)\b' | sort -u)
  if ! cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" >>"$build/build.log" 2>&1; then
    grep -E 'error|FAILED' -A 5 "$build/build.log" | head -60 >&2
    echo 'gpu.sh: it does not build, see build/gpu/build.log' >&2
    exit 1
  fi
}

row() { printf '%-76s %s\n' "$1" "$2" | tee -a "$table"; }

# Prints the number of tests in a log, and a row for each test that did not pass.
tests_of() {
  local program=$1 status=0 line why='' passed=0 skipped=0
  shift
  "$build/bin/$program" "$@" >"$build/$program.log" 2>&1 || status=$?
  while read -r line; do
    case "$line" in
      *'skipped: '*) why=${line#*skipped: } ;;
      '[       OK ] '*) passed=$((passed + 1)) ;;
      '[  SKIPPED ] '*'ms)') skipped=$((skipped + 1)) ;;
      '[  FAILED  ] '*'ms)') row "$program: ${line#*] }" FAILED ;;
    esac
  done <"$build/$program.log"
  [[ "$why" != 'no CUDA device'* ]] || device=no
  [ $passed -eq 0 ] || ran=yes
  row "$program" "$passed passed$([ $skipped -eq 0 ] || echo ", $skipped skipped")$([ -z "$why" ] || echo " ($why)")"
  [ $status -eq 0 ] || failed+=("$program: status $status, see build/gpu/$program.log")
}

# bench WHAT RANKS [ARGUMENTS...]: prints what collectives_bench has verified, with ranks that start with $start. NCCL
# takes ranks with two host names for ranks of two hosts. Ranks that share a GPU need that, and auto would then select
# NCCL.
runs=0
start=exec
named='NCCL_HOSTID=rank$RANK exec'
bench() {
  local what=$1 ranks=$2 status=0 log
  shift 2
  log=$build/bench_$((runs += 1)).log
  "$build/bin/collectives_run" -n "$ranks" sh -c "$start"' "$0" "$@"' \
    "$build/bin/collectives_bench" "$@" --buffers device --warmup 1 >"$log" 2>&1 || status=$?
  if grep -q -- '--buffers device: there is no' "$log"; then
    device=no
    row "$what, ranks $ranks" 'skipped: no CUDA device'
    return 0
  fi
  ran=yes
  row "$what, ranks $ranks" "$(grep -E 'wrong elements|^collectives_bench:' "$log" | tail -n 1 | sed 's/^# //' || true)"
  [ $status -eq 0 ] || failed+=("$what: status $status, see $log")
  # Prints time and bus bandwidth of the longest vectors out of place.
  awk -v ranks="$ranks" '
    /^# [a-z_]+, backend / { title = substr($0, 3) }
    $1 ~ /^[0-9]+$/ && $1 >= 16777216 { line[title] = sprintf("%d bytes: %s us, %s GB/s (bus)", $1, $6, $8)
                                        if (!(title in seen)) order[++count] = title; seen[title] = 1 }
    END { for (i = 1; i <= count; ++i) printf "%s, ranks %d|%s\n", order[i], ranks, line[order[i]] }' "$log" |
    while IFS='|' read -r what line; do row "  $what" "$line"; done
}

# Prints the epoch lines of a training run in one row.
training() {
  local what=$1 status=0
  shift
  "$@" --json "$build/training.json" >"$build/training.log" 2>&1 || status=$?
  if [ $status -ne 0 ]; then
    row "$what" "$([ "$device" = yes ] && echo FAILED || echo 'skipped: no CUDA device')"
    [ "$device" = no ] || failed+=("$what: $(tail -n 1 "$build/training.log")")
    return 0
  fi
  row "$what" "$(grep '"event":"epoch"' "$build/training.json" | tail -n 1 | sed 's/[,{}]/\n/g' |
    grep -E '"(test_accuracy|images_per_second|compute_ms|communication_exposed_ms|communication_hidden_ms)"' |
    sed -E 's/"([a-z_]*)":/\1 /; s/([0-9]\.[0-9]{4})[0-9]*/\1/' | paste -sd, | sed 's/,/, /g')"
}

tests() {
  tests_of cuda_kernels_test
  tests_of cuda_backend_test
  [ ! -x "$build/bin/mnist_test" ] || tests_of mnist_test --gtest_filter='Devices/EveryDevice.*/cuda'
}

collectives() {
  local ranks backends=auto,ring,hierarchical,reduce_to_one
  for ranks in "${processes[@]}"; do
    bench 'every collective, type and op, to 64 KiB' $ranks all --type "${GPU_TYPES:-all}" --op all --odd --factor 64 --max-bytes 64K \
      --iterations 2 --backend $backends
    bench "every collective, to $most" $ranks all --factor 16 --max-bytes "$most" --iterations 5 --backend $backends
  done
  bench 'coded, and top-k' "${processes[-1]}" all_reduce --compress bf16,f16,int8,top_k:1%,top_k:0.1% --force --factor 16 \
    --max-bytes "$most" --iterations 5
  bench 'in a stream' "${processes[-1]}" all --back-to-back --factor 64 --max-bytes "$most" --backend $backends
  local hosts="sh $PWD/tests/support/on_fake_hosts.sh 2" on_hosts="all_reduce --factor 16 --max-bytes $most --compress none,bf16,top_k:1%"
  start="exec $hosts" bench 'on 2 hosts' 4 $on_hosts --backend hierarchical
  start="exec $hosts" bench 'on 2 hosts, every collective' 4 all --factor 64 --max-bytes "$most" --iterations 5 --backend $backends
  if "$build/bin/collectives_info" | grep -qE '^ *nccl +available'; then
    for ranks in "${processes[@]}"; do
      start=$named NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 bench 'by NCCL' $ranks all --factor 64 --max-bytes 16M --backend nccl
    done
    start="$named $hosts" NCCL_SOCKET_IFNAME=lo NCCL_IB_DISABLE=1 COLLECTIVES_GPU_PEERS=off \
      bench 'on 2 hosts, by NCCL inside' 4 $on_hosts --backend hierarchical
  else
    row 'by NCCL' "not: $("$build/bin/collectives_info" | sed -n 's/^ *nccl  *not available: //p')"
  fi
}

kernels() {
  local line
  "$build/bin/gpu_bench" >"$build/gpu_bench.log" 2>&1 ||
    failed+=("gpu_bench: $(tail -n 1 "$build/gpu_bench.log")")
  while read -r line; do
    [ "$line" != 'skipped: no CUDA device' ] || device=no
    row "gpu_bench: ${line:0:40}" "${line:40}"
  done <"$build/gpu_bench.log"
  if [ $device = yes ] && python3 -c 'import torch' 2>/dev/null; then
    # Times top-k of torch: the largest magnitudes of as many elements, without error feedback.
    python3 - >"$build/torch.log" 2>&1 <<'PYTHON' || true
import torch
n = 1 << 28
gradient = torch.randn(n, device="cuda")
for density in (0.01, 0.001):
    k = int(density * n)
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.topk(gradient.abs(), k, sorted=False)
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end))
    print(f"torch.topk of {n}, {100 * density:g}%: {sorted(times)[len(times) // 2]:.1f} us")
PYTHON
    while read -r line; do row "${line%%: *}" "${line#*: }"; done <"$build/torch.log"
  fi
}

trainers() {
  if [ ! -x "$build/bin/mnist_trainer" ]; then
    row mnist_trainer 'not built: no oneDNN'
    return 0
  elif [ ! -e "$build/lib/libmnist_cuda.so" ]; then
    row 'mnist_trainer, cuda' 'not built: no cuDNN or cuBLAS'
    return 0
  fi
  local trainer=("$build/bin/mnist_trainer" --epochs 2 --batch 256 --synthetic-train 20480) ranks
  for ranks in 1 2; do
    training "mnist_trainer, cnn, cuda, ranks $ranks" \
      env -u MNIST_DIR "$build/bin/collectives_run" -n $ranks "${trainer[@]}" --device cuda
  done
  [ $device = yes ] || return 0
  training 'mnist_trainer, cnn, cpu, ranks 1' env -u MNIST_DIR "${trainer[@]}"
  [ -n "${MNIST_DIR:-}" ] || return 0
  local where
  for where in cuda cpu; do
    "$build/bin/mnist_trainer" --device $where --until-accuracy 0.99 --test-every 100 --epochs 20 --batch 64 \
      >"$build/training.log" 2>&1 || failed+=("mnist_trainer to 99 %, $where: see build/gpu/training.log")
    row "mnist_trainer, cnn, $where, MNIST to 99 %" "$(grep -E 'test accuracy .* reached' "$build/training.log" || true)"
  done
}

sanitizer() {
  local tool checker
  checker=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [ ! -x "$checker" ]; then
    row compute-sanitizer 'not here'
    return 0
  fi
  check() {
    local what=$1 status=0
    shift
    "$@" >"$build/sanitizer.log" 2>&1 || status=$?
    cp "$build/sanitizer.log" "$build/sanitizer_${what//[^a-z]/_}.log"
    row "compute-sanitizer, $what" "$(grep 'ERROR SUMMARY' "$build/sanitizer.log" | tail -n 1 | sed 's/^=* *//' || true)"
    [ $status -eq 0 ] || failed+=("compute-sanitizer, $what: status $status, see build/gpu/sanitizer_*.log")
  }
  for tool in memcheck racecheck synccheck initcheck; do
    check "$tool, kernels" env CUDA_KERNELS_LONG=10007 "$checker" --tool $tool --error-exitcode 9 \
      "$build/bin/cuda_kernels_test"
  done
  check 'memcheck, collectives' "$checker" --tool memcheck --error-exitcode 9 "$build/bin/collectives_bench" all \
    --bootstrap threads:2 --buffers device --factor 64 --max-bytes 64K --iterations 1 --warmup 1 \
    --backend auto,ring,reduce_to_one
}

run() {
  local folder multiarch section sections=("$@")
  multiarch=$(c++ -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
  [ $# -gt 0 ] || sections=(tests collectives kernels training sanitizer)
  [ ! -d "$parts/lib/$multiarch" ] || export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$parts/lib/$multiarch
  while read -r folder; do
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder/lib
  done < <(pip_folders)
  table=$build/table.txt
  : >"$table"
  device=yes
  ran=no
  failed=()
  for section in "${sections[@]}"; do
    echo "== $section"
    case "$section" in
      training) trainers ;;
      tests | collectives | kernels | sanitizer) "$section" ;;
    esac
  done

  echo
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'gpu.sh: %s\n' "${failed[@]}" >&2
    exit 1
  fi
  if [ $device = no ] && [ $ran = no ]; then
    echo 'gpu.sh: no CUDA device: nothing was tested or measured' >&2
    exit 77
  fi
  echo "Table: $table"
}

known() {
  local section
  for section in "$@"; do
    case "$section" in
      tests | collectives | kernels | training | sanitizer) ;;
      *) fail "\"$section\" is none of --pack, --build, --run, tests, collectives, kernels, training, sanitizer" ;;
    esac
  done
}

case "${1:-}" in
  --pack) pack ;;
  --build) build ;;
  --run)
    shift
    known "$@"
    [ -d "$build/bin" ] || fail "nothing has been built in $build (scripts/gpu.sh --build)"
    run "$@"
    ;;
  *)
    known "$@"
    build
    run "$@"
    ;;
esac
