#!/usr/bin/env bash
# Measures the time that compressed gradients save: trains the CNN on MNIST on two hosts, which are namespaces of this
# machine (tests/multi_host/hosts.sh). Measures the step and the time to an accuracy. Needs root.
#
#   MNIST_DIR=FOLDER scripts/mnist_wire.sh [OPTIONS]
#     --rate 1gbit           rate of the link; or unshaped
#     --burst B  --packet B  bytes that the link passes at once, see hosts.sh --help [16kb, 64kb]
#     --batch 64             images per rank
#     --steps 300            steps of one measurement
#     --rounds 5             measurements of each kind, interleaved; the table has medians
#     --accuracy 0.988       goal of the training; 0: measures only the step
#     --seeds 3              runs to the accuracy
#     --learning-rate 0.05
#     --compress LIST        kinds beside none [bf16,top_k:1%]
#     --output FILE          the table [stdout]
#     --build FOLDER         [build/release]
#
# All runs use SGD with momentum 0.9. With top-k the compressor keeps the momentum, and the density falls to its final
# value in the first 100 steps. The row "alone" has two ranks that train at the same time without exchanging gradients.
#
# The time to an accuracy counts training steps only. Tests run after every 50 steps and are not counted. The number of
# steps does not depend on the link, so --rate unshaped finds it sooner.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
command_line="scripts/$(basename "$0") $*"
. "$root/scripts/compare_common.sh"

rate=1gbit burst=16kb packet=64kb batch=64 steps=300 rounds=5 accuracy=0.988 seeds=3 learning_rate=0.05
compress=bf16,top_k:1% output= build=$root/build/release
while [ $# -gt 0 ]; do
  if [ "$1" = --help ]; then print_help; fi
  require_value "$@"
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
require_counts "--batch $batch" "--steps $steps" "--rounds $rounds" "--seeds $seeds"
require_mnist
require_programs mnist_trainer wire_probe
require_hosts
unset COLLECTIVES_TUNING
raise_hosts 2

# arguments KIND: sets $arguments, the trainer's arguments for this kind of compression.
arguments() {
  case "$1" in
    alone) arguments=(--optimizer momentum --local-steps 1000000) ;;
    top_k*) arguments=(--optimizer sgd --momentum-correction 0.9 --warm-up-steps 100 --compress "$1") ;;
    *) arguments=(--optimizer momentum --compress "$1") ;;
  esac
  arguments+=(--model cnn --lr "$learning_rate" --batch $((2 * batch)))
}

# train KIND ARGUMENTS...: trains, and leaves the JSON lines in $scratch/json.
train() {
  arguments "$1"
  shift
  "$hosts_sh" each 1,1 "$build/bin/mnist_trainer" "${arguments[@]}" "$@" --json "$scratch/json" >"$scratch/log" 2>&1 ||
    refuse "mnist_trainer failed: $(tail -n 1 "$scratch/log")"
}
# field EVENT NAME: prints a field of the last line with this event.
field() { sed -n "/\"event\":\"$1\"/s/.*\"$2\":\(\"[^\"]*\"\|[0-9a-z.e+-]*\).*/\1/p" "$scratch/json" | tail -n 1; }

: >"$scratch/steps"
: >"$scratch/wire"
kinds="alone none ${compress//,/ }"
for ((round = 1; round <= rounds; ++round)); do
  probe_pair 1 2 >>"$scratch/wire"
  for kind in $kinds; do
    # The first epoch includes warm-up and connecting, so the second one counts.
    train "$kind" --epochs 2 --train-limit $((2 * batch * steps)) --test-limit 1000
    echo "$kind $(field epoch step_ms_median) $(field epoch compute_ms) $(field epoch communication_exposed_ms) $(field epoch communication_hidden_ms)" \
      >>"$scratch/steps"
  done
  echo "round $round of $rounds" >&2
done
: >"$scratch/reached"
if [ "$accuracy" != 0 ]; then
  for ((seed = 1; seed <= seeds; ++seed)); do
    for kind in $kinds; do
      [ "$kind" != alone ] || continue
      train "$kind" --epochs 12 --until-accuracy "$accuracy" --test-every 50 --seed "$seed"
      echo "$kind $(field reached reached) $(field reached seconds) $(field reached steps)" >>"$scratch/reached"
    done
    echo "seed $seed of $seeds" >&2
  done
fi

table() {
  describe_run
  describe_link 'link: '
  describe_wire "$scratch/wire"
  awk "$awk_functions"'
    FILENAME ~ /wire$/ { wire += ($2 + $3) / 2; ++probes; next }
    {
      if (!($1 in known)) { known[$1] = 1; kinds[++rows] = $1 }
      for (c = 2; c <= 5; ++c) times[$1, c, ++number[$1, c]] = $c
    }
    END {
      alone = median("alone", 2); none = median("none", 2)
      printf "%-12s %10s %11s %11s %10s %11s %10s\n", "compress", "step ms", "compute ms", "exposed ms", "hidden ms", "step/alone", "none/step"
      for (r = 1; r <= rows; ++r)
        printf "%-12s %10.2f %11.2f %11.2f %10.2f %11.2f %10.2f\n", kinds[r], median(kinds[r], 2), median(kinds[r], 3), median(kinds[r], 4),
          median(kinds[r], 5), median(kinds[r], 2) / alone, none / median(kinds[r], 2)
      printf "the wire alone, f32: %.2f ms a step\n", 347146 * 4 / (wire / probes) / 1000
    }' "$scratch/wire" "$scratch/steps"
  if [ -s "$scratch/reached" ]; then
    echo "to $accuracy of the test images: seconds of training, steps, of each seed"
    awk '{ if (!($1 in text)) kinds[++rows] = $1; text[$1] = text[$1] sprintf("  %.1f s %s steps%s", $3, $4, $2 == "true" ? "" : " (not reached)") }
      END { for (r = 1; r <= rows; ++r) printf "%-12s%s\n", kinds[r], text[kinds[r]] }' "$scratch/reached"
  fi
}
if [ -n "$output" ]; then table >"$output"; else table; fi
