# ExaML: phylogenetic trees by maximum likelihood. The ranks share the sites of the alignment. Each evaluation of a
# tree's likelihood, or of its derivatives along a branch, is an all-reduce of a few doubles.
packages='examl'
mpis='openmpi'
last_digit=1e-10
prepare() {
  # Generates sequences that have evolved along a binary tree, and a start tree that is independent of it.
  awk -v taxa=16 -v sites="$([ "$size" = check ] && echo 400 || echo 3600)" 'BEGIN {
    srand(7)
    print taxa, sites
    for (i = 1; i <= taxa; ++i) {
      line = ""
      for (s = 1; s <= sites; ++s) {
        base[i, s] = i == 1 || rand() < 0.12 ? int(4 * rand()) : base[int(i / 2), s]
        line = line substr("ACGT", base[i, s] + 1, 1)
      }
      print "t" i, line
    }
    tree = "(t1,t2)"
    for (i = 3; i < taxa - 1; ++i) tree = "(" tree ",t" i ")"
    print "(" tree ",t" taxa - 1 ",t" taxa ");" >"start.nwk"
  }' >alignment.phy
  parse-examl -s alignment.phy -m DNA -n alignment >/dev/null
  command=(/usr/lib/examl/bin/examl-sse3 -s alignment.binary -t start.nwk -m GAMMA -n run)
  [ "$size" = time ] || command+=(-f E)
}
checks() { grep -oE 'Likelihood tree [0-9]+|Likelihood +:|[Ee]rror.*' ExaML_info.run | sort | uniq -c; }
digits() { sed -nE 's/^Likelihood( tree 0| +): *(-[0-9.]+).*/likelihood \2/p' ExaML_info.run; }
