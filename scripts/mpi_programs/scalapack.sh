# A tester of ScaLAPACK, such as xdlu. It compares residuals with a threshold and prints PASSED or FAILED for each
# matrix. No other number in its output depends on the order of summation.
packages='scalapack-mpi-test gcc'
mpis='openmpi mpich'
case $program in xdsep | xdsvd) least_ranks=4 ;; esac
last_digit=0
prepare() {
  local tests
  tests=/usr/lib/$(gcc -print-multiarch)/scalapack/$mpi-tests
  command=("$tests/$program")
  cp "$tests"/*.dat .
  # Testers of eigenvalues and singular values choose grids themselves, with at most four ranks. The other testers get
  # one row of ranks and one column. With --time they get the row three times, with matrices that nearly fill the
  # memory.
  local data=$program.dat
  case $program in
    xdlu) data=LU.dat ;;
    xdllt) data=LLT.dat ;;
    xdqr) data=QR.dat ;;
    xdinv) data=INV.dat ;;
    *) return 0 ;;
  esac
  awk -v ranks="$ranks" -v order="$([ "$size" = check ] || echo 180)" '
    /process grids/ { $1 = order == "" ? 2 : 3 }
    /values of P/ { $1 = order == "" ? 1 " " ranks " " : "1 1 1 " }
    /values of Q/ { $1 = ranks " " (order == "" ? 1 : ranks " " ranks) " " }
    order != "" && /number of problem/ { $1 = 20 }
    order != "" && /values of [MN]$/ { for (i = 0; i < 20; ++i) printf "%d ", order; $0 = "values of " $NF }
    order != "" && /values of (MB|NB)$/ { $0 = "4 8 16 32 values of " $NF }
    { print }' "$data" >input
  mv input "$data"
}
checks() { grep -oE 'PASSED|FAILED|[0-9]+ tests? completed.*' out | sort | uniq -c; }
digits() { :; }
