#!/usr/bin/env bash
# What compressed gradients bring in time: trains the CNN on MNIST on two hosts, namespaces of this machine, with a link of
# a given rate between them (tests/hosts/hosts.sh). The step, and the time to an accuracy. Needs root.
#
#   MNIST_DIR=FOLDER scripts/mnist_wire.sh [OPTIONS]
#     --rate 1gbit           of the link; or unshaped
#     --burst B  --packet B  what it lets pass at once, as hosts.sh --help says [16kb, 64kb]
#     --batch 64             images per rank
#     --steps 300            of one measurement of the step
#     --rounds 5             measurements of each, interleaved; medians count
#     --accuracy 0.988       trained to; 0: only the step is measured
#     --seeds 3              of the runs to the accuracy; medians count
#     --learning-rate 0.05
#     --compress LIST        beside none [bf16,top_k:1%]
#     --output FILE          the table [stdout]
#     --build FOLDER         [build/release]
#
# All are SGD with momentum 0.9; with top-k the compressor keeps the momentum, and the density falls to its own in the first
# 100 steps. The compute time alone is that of two ranks that train without exchanging gradients, at the same time. The
# time to an accuracy is that of training steps, without tests, which are made after every 50. How many steps it takes
# does not depend on the link: --rate unshaped finds that out sooner.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
name=$(basename "$0")
command_line="scripts/$name $*"

refuse() {
  echo "$name: $1" >&2
  exit 2
}

rate=1gbit burst=16kb packet=64kb batch=64 steps=300 rounds=5 accuracy=0.988 seeds=3 learning_rate=0.05
compress=bf16,top_k:1% output= build=$root/build/release
while [ $# -gt 0 ]; do
  if [ "$1" = --help ]; then
    sed -n '2,/^set -eu/{/^set -eu/!s/^# \{0,1\}//p}' "$0"
    exit 0
  fi
  [ $# -ge 2 ] || refuse "$1 needs a value (see --help)"
  case "$1" in
    --rate) rate=$2 ;;
    --burst) burst=$2 ;;
    --packet) packet=$2 ;;
    --batch) batch=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --accuracy) accuracy=$2 ;;
    --seeds) seeds=$2 ;;
    --learning-rate) learning_rate=$2 ;;
    --compress) compress=$2 ;;
    --output) output=$2 ;;
    --build) build=$2 ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
for number in "--batch $batch" "--steps $steps" "--rounds $rounds" "--seeds $seeds"; do
  [[ "${number#* }" =~ ^[1-9][0-9]*$ ]] || refuse "$number: not a number from 1"
done
[ -d "${MNIST_DIR:-}" ] || refuse "MNIST_DIR must be the folder with the four IDX files"
for program in mnist_trainer wire_probe; do
  [ -x "$build/bin/$program" ] || refuse "$build/bin/$program is not built"
done
hosts_sh=$root/tests/hosts/hosts.sh
unset HOSTS_BED COLLECTIVES_TUNING # of whoever calls
why=$("$hosts_sh" possible) || refuse "hosts cannot be made here: $why"

scratch=$(mktemp -d)
down() {
  [ -z "${HOSTS_BED:-}" ] || "$hosts_sh" down || true
  rm -rf "$scratch"
}
trap down EXIT
options=(--burst "$burst" --packet "$packet")
if [ "$rate" != unshaped ]; then options+=(--rate "$rate"); fi
HOSTS_BED=$("$hosts_sh" up 2 "${options[@]}" --owner $$)
export HOSTS_BED

# arguments HOW: sets $arguments, what the trainer is told about it.
arguments() {
  case "$1" in
    alone) arguments=(--optimizer momentum --local-steps 1000000) ;;
    top_k*) arguments=(--optimizer sgd --momentum-correction 0.9 --warm-up-steps 100 --compress "$1") ;;
    *) arguments=(--optimizer momentum --compress "$1") ;;
  esac
  arguments+=(--model cnn --lr "$learning_rate" --batch $((2 * batch)))
}

# train HOW ARGUMENTS...: leaves its lines in $scratch/json.
train() {
  arguments "$1"
  shift
  "$hosts_sh" each 1,1 "$build/bin/mnist_trainer" "${arguments[@]}" "$@" --json "$scratch/json" >"$scratch/log" 2>&1 ||
    refuse "mnist_trainer failed: $(tail -n 1 "$scratch/log")"
}
# field EVENT NAME: of the last such line.
field() { sed -n "/\"event\":\"$1\"/s/.*\"$2\":\(\"[^\"]*\"\|[0-9a-z.e+-]*\).*/\1/p" "$scratch/json" | tail -n 1; }

: >"$scratch/steps"
: >"$scratch/wire"
ways="alone none ${compress//,/ }"
for ((round = 1; round <= rounds; ++round)); do
  "$hosts_sh" run h2 "$build/bin/wire_probe" serve >/dev/null 2>&1 &
  "$hosts_sh" run h1 "$build/bin/wire_probe" measure h2 >>"$scratch/wire"
  wait
  for how in $ways; do
    # The first epoch has what happens once in it: warm-up, connections.
    train "$how" --epochs 2 --train-limit $((2 * batch * steps)) --test-limit 1000
    echo "$how $(field epoch step_ms_median) $(field epoch compute_ms) $(field epoch communication_exposed_ms) $(field epoch communication_hidden_ms)" \
      >>"$scratch/steps"
  done
  echo "round $round of $rounds" >&2
done
: >"$scratch/reached"
if [ "$accuracy" != 0 ]; then
  for ((seed = 1; seed <= seeds; ++seed)); do
    for how in $ways; do
      [ "$how" != alone ] || continue
      train "$how" --epochs 12 --until-accuracy "$accuracy" --test-every 50 --seed "$seed"
      echo "$how $(field reached reached) $(field reached seconds) $(field reached steps)" >>"$scratch/reached"
    done
    echo "seed $seed of $seeds" >&2
  done
fi

table() {
  echo "\$ $command_line"
  echo "$(date -u '+%Y-%m-%d'), $(nproc) cores, commit $(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unknown)"
  echo "link: $("$hosts_sh" run h1 tc qdisc show dev eth0 | head -n 1)"
  awk '{ sum += ($2 + $3) / 2; way += $5 }
    END { printf "two opposite TCP streams: %.1f Mbyte/s in each direction; 28 KiB one way: %.3f ms\n", sum / NR, way / NR }' \
    "$scratch/wire"
  awk '
    function median(list, n, i, j, t) {
      for (i = 2; i <= n; ++i) for (j = i; j > 1 && list[j] < list[j - 1]; --j) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
      return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    function of(how, column, i, list) {
      for (i = 1; i <= number[how]; ++i) list[i] = value[how, column, i]
      return median(list, number[how])
    }
    FILENAME ~ /wire$/ { wire += ($2 + $3) / 2; ++probes; next }
    {
      if (!($1 in number)) ways[++rows] = $1
      ++number[$1]
      for (c = 2; c <= 5; ++c) value[$1, c, number[$1]] = $c
    }
    END {
      alone = of("alone", 2); none = of("none", 2)
      printf "%-12s %10s %11s %11s %10s %11s %10s\n", "compress", "step ms", "compute ms", "exposed ms", "hidden ms", "step/alone", "none/step"
      for (r = 1; r <= rows; ++r)
        printf "%-12s %10.2f %11.2f %11.2f %10.2f %11.2f %10.2f\n", ways[r], of(ways[r], 2), of(ways[r], 3), of(ways[r], 4),
          of(ways[r], 5), of(ways[r], 2) / alone, none / of(ways[r], 2)
      printf "the wire alone, f32: %.2f ms a step\n", 347146 * 4 / (wire / probes) / 1000
    }' "$scratch/wire" "$scratch/steps"
  if [ -s "$scratch/reached" ]; then
    echo "to $accuracy of the test images: seconds of training, steps, of each seed"
    awk '{ if (!($1 in text)) ways[++rows] = $1; text[$1] = text[$1] sprintf("  %.1f s %s steps%s", $3, $4, $2 == "true" ? "" : " (not reached)") }
      END { for (r = 1; r <= rows; ++r) printf "%-12s%s\n", ways[r], text[ways[r]] }' "$scratch/reached"
  fi
}
if [ -n "$output" ]; then table >"$output"; else table; fi
