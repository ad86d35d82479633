#!/usr/bin/env bash
# What needs a GPU, on a machine that has one and little else: CMake, a C++ compiler, nvcc. Nothing is installed there
# and nothing fetched: the libraries that the project stands on come from build/gpu_parts, which a Debian machine fills.
#
#   scripts/gpu.sh --pack      on Debian: build/gpu_parts, out of the installed packages
#   scripts/gpu.sh --build     with build/gpu_parts copied along, if need be: builds in build/gpu
#   scripts/gpu.sh             builds, runs the GPU tests and benchmarks, prints one table: build/gpu/table.txt
#
# Ends with 0; with 1 when something does not build or a test fails; with 2 when it cannot begin; with 77 when there is
# no CUDA device, so that every test and every benchmark was skipped.
set -eu -o pipefail
cd "$(dirname "$0")/.."

parts=$PWD/build/gpu_parts
build=$PWD/build/gpu
most_mib=60  # of the parts

fail() {
  echo "gpu.sh: $1" >&2
  exit 2
}

# Headers, libraries and CMake packages, as they lie below /usr. Of zlib the archive only: a program that was started
# with these libraries in its path would find an older one than it was built with.
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

# Where pip has put NVIDIA's libraries, for machines that have cuDNN or NCCL from there alone.
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
  local generator=() prefixes=$parts folder
  ! command -v ninja >/dev/null || generator=(-G Ninja)
  while read -r folder; do prefixes="$prefixes;$folder"; done < <(pip_folders)

  mkdir -p "$build"
  echo "== Building (log: build/gpu/build.log)"
  if ! cmake -B "$build" -S . "${generator[@]}" -D CMAKE_BUILD_TYPE=Release -D COLLECTIVES_WITH_MPI=OFF \
    -D COLLECTIVES_WITH_UCX=OFF -D CMAKE_PREFIX_PATH="$prefixes" >"$build/build.log" 2>&1; then
    tail -n 30 "$build/build.log" >&2
    echo "gpu.sh: it cannot be configured; are build/gpu_parts here (scripts/gpu.sh --pack on a Debian machine)?" >&2
    exit 2
  fi
  grep -E '^-- collectives:' "$build/build.log" || true
  grep -q 'CUDA ON' "$build/build.log" || fail 'CMake finds no CUDA toolkit'
  local targets=(gpu_bench collectives_run collectives_bench collectives_info)
  mapfile -t -O ${#targets[@]} targets < <(cmake --build "$build" --target help |
    grep -oE '\b(cuda_[a-z_]*test|mnist_test|mnist_trainer|mnist_cuda)\b' | sort -u)
  if ! cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" >>"$build/build.log" 2>&1; then
    grep -E 'error|FAILED' -A 5 "$build/build.log" | head -60 >&2
    echo 'gpu.sh: it does not build, see build/gpu/build.log' >&2
    exit 1
  fi
}

row() { printf '%-76s %s\n' "$1" "$2" | tee -a "$table"; }

# A row for each test of a program, by its name.
tests_of() {
  local program=$1 status=0 line why=''
  shift
  "$build/bin/$program" "$@" >"$build/$program.log" 2>&1 || status=$?
  while read -r line; do
    case "$line" in
      *'skipped: '*) why=${line#*skipped: } ;;
      '[       OK ] '*) row "${line#*] }" passed ;;
      '[  SKIPPED ] '*'ms)') row "${line#*] }" "skipped: $why" ;;
      '[  FAILED  ] '*'ms)') row "${line#*] }" FAILED ;;
    esac
  done <"$build/$program.log"
  [ $status -eq 0 ] || failed+=("$program: status $status, see build/gpu/$program.log")
}

# What the epoch lines of a run of the trainer say, in one row.
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

run() {
  local folder multiarch
  multiarch=$(c++ -print-multiarch)
  export LD_LIBRARY_PATH=$parts/lib/$multiarch${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  while read -r folder; do LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$folder/lib; done < <(pip_folders)
  table=$build/table.txt
  : >"$table"
  device=yes
  failed=()

  echo '== Tests'
  local program
  for program in "$build"/bin/cuda_*test; do
    tests_of "$(basename "$program")"
  done
  [ ! -x "$build/bin/mnist_test" ] || tests_of mnist_test --gtest_filter='Devices/EveryDevice.*/cuda'

  echo '== Kernels'
  local line
  "$build/bin/gpu_bench" >"$build/gpu_bench.log" 2>&1 ||
    failed+=("gpu_bench: $(tail -n 1 "$build/gpu_bench.log")")
  while read -r line; do
    [ "$line" != 'skipped: no CUDA device' ] || device=no
    row "gpu_bench: ${line:0:40}" "${line:40}"
  done <"$build/gpu_bench.log"

  echo '== Training'
  if [ ! -x "$build/bin/mnist_trainer" ]; then
    row mnist_trainer 'not built: no oneDNN'
  elif [ ! -e "$build/lib/libmnist_cuda.so" ]; then
    row 'mnist_trainer, cuda' 'not built: no cuDNN or cuBLAS'
  else
    local trainer=("$build/bin/mnist_trainer" --epochs 2 --batch 256 --synthetic-train 20480)
    local ranks
    for ranks in 1 2; do
      training "mnist_trainer, cnn, cuda, ranks $ranks" \
        "$build/bin/collectives_run" -n $ranks "${trainer[@]}" --device cuda
    done
    [ "$device" = no ] || training 'mnist_trainer, cnn, cpu, ranks 1' "${trainer[@]}"
  fi

  echo
  if [ ${#failed[@]} -gt 0 ]; then
    printf 'gpu.sh: %s\n' "${failed[@]}" >&2
    exit 1
  fi
  if [ $device = no ]; then
    echo 'gpu.sh: no CUDA device: nothing was tested or measured' >&2
    exit 77
  fi
  echo 'Table: build/gpu/table.txt'
}

case "${1:-}" in
  --pack) pack ;;
  --build) build ;;
  '') build && run ;;
  *) fail "\"$1\" is neither --pack nor --build" ;;
esac
