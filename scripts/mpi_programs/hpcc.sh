# HPC Challenge: LU factorization (HPL), matrix transposes, random access, Fourier transforms, latency, bandwidth. Each
# part checks its own result. The residual of HPL is noise, so only the norms of its matrix and solution are compared.
packages='hpcc'
mpis='openmpi'
last_digit=1e-15
prepare() {
  local order=400 p=1
  [ "$size" = check ] || order=600
  [ "$ranks" -lt 4 ] || p=2
  sed -E "s/^[0-9]+ +(Ns)/$order \1/; s/^[0-9]+ +(NBs)/32 \1/; s/^[0-9 ]+ +(Ps)/$p \1/; s/^[0-9 ]+ +(Qs)/$((ranks / p)) \1/" \
    /usr/share/doc/hpcc/examples/_hpccinf.txt >hpccinf.txt
  command=(hpcc)
}
# The transposes print a line with CPU times only if a CPU time is above 0.
checks() { grep -v '^CPU' hpccoutf.txt | grep -oE 'PASSED|FAILED|[A-Za-z_]*Success=[01]' | sort | uniq -c; }
digits() { sed -nE 's/^(HPL_[ABX]norm[1I])=/\1 /p' hpccoutf.txt; }
