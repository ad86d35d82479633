#!/bin/sh
# on_fake_hosts.sh RANKS_PER_HOST PROGRAM ARGUMENTS...: runs under mpirun or collectives_run. Tells PROGRAM that
# every RANKS_PER_HOST ranks have a host of their own.
per_host=$1
shift
COLLECTIVES_HOST_ID=host$((${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${RANK:-0}}} / per_host))
COLLECTIVES_CORES=1  # of each fake host
export COLLECTIVES_HOST_ID COLLECTIVES_CORES
exec "$@"
