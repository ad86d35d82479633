#!/usr/bin/env bash
# Installs the missing packages among those that the project uses and those named as arguments. Needs root or sudo only
# if a package is missing.
set -eu

packages=(
  g++ cmake ninja-build pkg-config
  libfmt-dev nlohmann-json3-dev libhwy-dev        # the library
  libhwloc-dev                                    # and its topology
  libcli11-dev                                    # its programs
  openmpi-bin libopenmpi-dev                      # the MPI component, mpirun
  libmpich-dev mpich                              # the drop-in for MPI programs, beside that for Open MPI
  libucx-dev                                      # the transport over UCX
  libdnnl-dev zlib1g-dev gnuplot-nox              # the MNIST trainer and its plot
  libgtest-dev libbenchmark-dev                   # tests and kernel benchmarks
  universal-ctags                                 # the test of sizes: where functions end
  dpkg-dev file                                   # Debian packages
  iproute2 ethtool                                # tests across hosts
  libsimgrid-dev                                  # tests on simulated hosts
  doxygen                                         # the reference
  ccache                                          # compiler cache shared by build modes (scripts/test.sh)
  mold                                            # linker of tests
  "$@"
)

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = 'install ok installed' ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "Missing packages, and no sudo to install them: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "Installing ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
