#!/usr/bin/env bash
# Measures the loss of accuracy by compressed gradients: trains on MNIST with and without compression, with equal seeds.
#
#   MNIST_DIR=FOLDER scripts/mnist_accuracy.sh --results FILE [OPTIONS]
#     --results FILE      a line for each completed run; a run with a line is not repeated
#     --seeds 20          every contender is trained with seeds 1, 2, ...
#     --epochs 3
#     --ranks 2           ranks on this machine; compression is forced, because they would save nothing
#     --batch 64          images per rank
#     --lr 0.05           learning rate of every contender
#     --model cnn
#     --contenders LIST   fp32 bf16 fp16 int8 top_k_1% top_k_0.1% local_8 no_feedback_0.1%
#                         [fp32,bf16,top_k_1%,top_k_0.1%,local_8,no_feedback_0.1%]
#     --build FOLDER      with mnist_trainer and collectives_run in its bin/ [build/release]
#
# All contenders use SGD with momentum 0.9. With top-k the compressor keeps the momentum (momentum correction), and the
# density falls to its final value in the first 100 steps. local_8 averages weights after 8 steps of each rank.
# no_feedback_0.1% drops the values that it does not send. It shows that the comparison detects a harmful compressor. It
# trains for one epoch and is compared with fp32 after that epoch.
#
# The table has means over the seeds: the test accuracy, and its loss against fp32 with the same seed in percentage
# points. A column has the standard error of the loss. The last column is the upper bound of the loss at 95 %
# confidence, one-sided, by Student's t. The script may be interrupted and started again at any time.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/compare_common.sh"

results=
seeds=20
epochs=3
ranks=2
batch=64
rate=0.05
model=cnn
build=$root/build/release
contenders=fp32,bf16,top_k_1%,top_k_0.1%,local_8,no_feedback_0.1%

while [ $# -gt 0 ]; do
  if [ "$1" = --help ]; then print_help; fi
  require_value "$@"
  case "$1" in
    --results) results=$2 ;;
    --seeds) seeds=$2 ;;
    --epochs) epochs=$2 ;;
    --ranks) ranks=$2 ;;
    --batch) batch=$2 ;;
    --lr) rate=$2 ;;
    --model) model=$2 ;;
    --contenders) contenders=$2 ;;
    --build) build=$2 ;;
    *) refuse "\"$1\" is no option (see --help)" ;;
  esac
  shift 2
done
require_counts "--seeds $seeds" "--epochs $epochs" "--ranks $ranks" "--batch $batch"
[ -n "$results" ] || refuse "--results FILE is missing (see --help)"
require_mnist
require_programs mnist_trainer collectives_run
touch "$results" 2>/dev/null || refuse "$results cannot be written"

# arguments CONTENDER: sets $arguments, the trainer's arguments without seed and report.
arguments() {
  local momentum=(--optimizer momentum) corrected=(--optimizer sgd --momentum-correction 0.9 --warm-up-steps 100)
  local epochs=$epochs
  arguments=(--model "$model" --batch $((batch * ranks)) --lr "$rate")
  case "$1" in
    fp32) arguments+=("${momentum[@]}") ;;
    bf16 | fp16 | int8) arguments+=("${momentum[@]}" --compress "$1" --force-compress) ;;
    top_k_*) arguments+=("${corrected[@]}" --compress "top_k:${1#top_k_}" --force-compress) ;;
    local_*) arguments+=("${momentum[@]}" --local-steps "${1#local_}") ;;
    no_feedback_*)
      epochs=1
      arguments+=("${momentum[@]}" --compress "top_k:${1#no_feedback_}" --error-feedback off --force-compress)
      ;;
    *) refuse "\"$1\" is no contender (see --help)" ;;
  esac
  arguments+=(--epochs "$epochs")
}

# key CONTENDER SEED: prints the start of a line of the results. A line has contender, seed, ranks, arguments, and the
# test accuracy after each epoch, separated by tabs.
key() { printf '%s\t%s\t%s ranks\t%s\t' "$1" "$2" "$ranks" "${arguments[*]}"; }

# train CONTENDER SEED: trains and appends a line, unless the line exists.
train() {
  local line status=0 begun=$SECONDS
  arguments "$1"
  line=$(key "$1" "$2" && echo .)
  if grep -qF -- "${line%.}" "$results"; then return 0; fi
  "$build/bin/collectives_run" -n "$ranks" "$build/bin/mnist_trainer" "${arguments[@]}" --seed "$2" \
    --json "$scratch/run.json" >"$scratch/log" 2>&1 &
  child=$!
  wait "$child" || status=$?
  child=
  if [ $status -ne 0 ]; then
    tail -n 20 "$scratch/log" >&2
    echo "$(basename "$0"): $1 with seed $2 failed (status $status)" >&2
    exit 1
  fi
  line=${line%.}$(sed -n '/"event":"epoch"/s/.*"test_accuracy":\([0-9.e-]*\).*/\1/p' "$scratch/run.json" |
    paste -sd ' ')
  printf '%s\n' "$line" >>"$results"
  printf '%-18s seed %-3d %s  (%d s)\n' "$1" "$2" "${line##*$'\t'}" $((SECONDS - begun))
}

for contender in ${contenders//,/ }; do arguments "$contender"; done # whether there are such
for ((seed = 1; seed <= seeds; ++seed)); do
  train fp32 "$seed"
  for contender in ${contenders//,/ }; do train "$contender" "$seed"; done
done

# --- The table

for contender in ${contenders//,/ }; do
  [ "$contender" != fp32 ] || continue
  arguments fp32
  for ((seed = 1; seed <= seeds; ++seed)); do key fp32 "$seed" && echo; done >"$scratch/plain"
  arguments "$contender"
  for ((seed = 1; seed <= seeds; ++seed)); do key "$contender" "$seed" && echo; done >"$scratch/coded"
  awk -F '\t' -v contender="$contender" '
    function quantile(freedom,   z) {  # of Student, 95 %, one-sided; beyond the table by Cornish and Fisher
      split("6.314 2.920 2.353 2.132 2.015 1.943 1.895 1.860 1.833 1.812 1.796 1.782 1.771 1.761 1.753 1.746 1.740 " \
            "1.734 1.729 1.725 1.721 1.717 1.714 1.711 1.708 1.706 1.703 1.701 1.699 1.697", table, " ")
      z = 1.645
      return freedom <= 30 ? table[freedom] : z + (z ^ 3 + z) / (4 * freedom)
    }
    FILENAME ~ /plain$/ { wanted_plain[$0] = 1; next }
    FILENAME ~ /coded$/ { wanted_coded[$0] = 1; next }
    {
      head = $0
      sub(/[^\t]*$/, "", head)
      if (head in wanted_plain) plain[$2] = $NF
      if (head in wanted_coded) coded[$2] = $NF
    }
    END {
      for (seed in coded) {
        if (!(seed in plain)) continue
        epochs = split(coded[seed], of_coded, " ")
        split(plain[seed], of_plain, " ")
        loss = 100 * (of_plain[epochs] - of_coded[epochs])
        ++n
        sum += loss
        square += loss * loss
        coded_sum += of_coded[epochs]
        plain_sum += of_plain[epochs]
      }
      if (n < 2) { printf "%-18s needs two seeds to be compared\n", contender; exit }
      mean = sum / n
      variance = (square - n * mean * mean) / (n - 1)
      error = variance > 0 ? sqrt(variance / n) : 0
      printf "%-18s %6d %5d %10.3f %10.3f %10.3f %10.3f %10.3f\n", contender, epochs, n, 100 * coded_sum / n,
             100 * plain_sum / n, mean, error, mean + quantile(n - 1) * error
    }' "$scratch/plain" "$scratch/coded" "$results"
done >"$scratch/table"
echo
echo "$model, $ranks ranks, batch $batch per rank, learning rate $rate; accuracies in %, losses in percentage points"
printf '%-18s %6s %5s %10s %10s %10s %10s %10s\n' contender epochs seeds accuracy fp32 loss error 'below'
cat "$scratch/table"
