#!/usr/bin/env bash
# Draws the curves of docs/algorithms.md and docs/compression.md from the tables in bench/results, into docs/curves.
# Needs gnuplot.
#
#   scripts/plot_curves.sh [FOLDER]
set -eu -o pipefail
cd "$(dirname "$0")/.."
results=bench/results
curves=${1:-docs/curves}
mkdir -p "$curves"
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT

# table FILE HEADING: the rows of the table under that heading, sizes in bytes.
table() {
  awk -v heading="$2" '
    BEGIN { unit["B"] = 1; unit["KiB"] = 1024; unit["MiB"] = 1024 ^ 2 }
    inside && NF == 0 { exit }
    inside && $2 in unit { $1 *= unit[$2]; $2 = ""; print }
    $0 == heading { inside = 1 }' "$1"
}

# by_backend RANKS: of hosts.txt, what auto picks and each backend by name; the names first.
by_backend() {
  awk -v ranks="# $1, links" '
    /^What auto picks/ { section = 1 }
    section && index($0, ranks) == 1 { inside = 1 }
    inside && $1 == "bytes" {
      for (i = 2; i <= NF; ++i) { sub(/^collectives-tcp:?/, "", $i); printf "%s ", $i == "" ? "auto" : $i }
      print ""
    }
    inside && $1 == "all_reduce" { gsub(/\([^)]*\)/, ""); $1 = ""; print }
    inside && NF == 0 { exit }' $results/hosts.txt
}

# draw NAME TITLE PLOT [TICS]: both axes logarithmic, microseconds over bytes.
draw() {
  gnuplot <<END
set terminal svg size 680,420 font 'sans-serif,12' background 'white'
set output '$curves/$1.svg'
set title '$2'
set logscale xy
set xlabel 'bytes'
set ylabel 'microseconds'
set format x '%.0b%BB'
set xtics ${4:-8, 16}
set format y '%g'
set grid
set key top left
plot ${3%, }
END
}

for ranks in 4 8; do
  table $results/one_host.txt "$ranks ranks, all_reduce, out of place: collectives-ordinary" >"$data/ordinary.$ranks"
done
for kind in ordinary allocated; do
  table $results/one_host_zen5.txt "2 ranks, all_reduce, out of place: collectives-$kind" >"$data/$kind.2"
done
lines() { printf "'%s' using 1:%s with linespoints pointsize 0.4 title '%s', " "$@"; }
draw one_host 'All-reduce on one host, 2 ranks on 2 cores of an AMD EPYC' "$(
  lines "$data/allocated.2" 2 'collectives, allocate()'
  lines "$data/ordinary.2" 2 'collectives, ordinary memory'
  lines "$data/ordinary.2" 7 'best setting of any peer'
  lines "$data/ordinary.2" 3 'best peer, default setting')"
draw one_host_oversubscribed 'All-reduce on one host, more ranks than its 2 cores, ordinary memory' "$(
  for ranks in 4 8; do
    lines "$data/ordinary.$ranks" 2 "$ranks ranks"
    lines "$data/ordinary.$ranks" 3 "$ranks ranks, best of Open MPI, UCX"
  done)"

for shape in '4 hosts x 1 ranks' '4 hosts x 2 ranks'; do
  file=$data/${shape// /_}
  by_backend "$shape" >"$file"
  read -ra names < <(head -n 1 "$file")
  draw "hosts_${shape:0:1}x${shape:10:1}" "All-reduce on ${shape/x 1 ranks/x 1 rank}, links of 1 Gbit/s" "$(
    for i in "${!names[@]}"; do
      width=1
      [ "${names[i]}" != auto ] || width=3
      printf "'%s' every ::1 using 1:%d with lines linewidth %d title '%s', " "$file" $((i + 2)) $width \
        "${names[i]//_/ }"
    done)"
done

compressed=$data/compressed # the first table of all kinds
awk '/^\$ scripts\/compare_compression/ && !/--compress/ { inside = 1 } inside && NF == 0 { exit }
     inside && $1 ~ /^[0-9]+$/ && $3 ~ /^[0-9]+$/ { print $1, $2, $3 }' $results/compression.txt >"$compressed"
draw compression 'All-reduce of 2 hosts, a link of 1 Gbit/s' "$(
  for kind in none bf16 int8 top_k:1%; do
    printf "'< grep \" %s \" %s' using 1:3 with linespoints pointsize 0.4 title '%s', " "$kind" "$compressed" \
      "${kind/top_k:/top-k }"
  done)" '1, 4'
