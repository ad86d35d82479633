#!/bin/sh
# on_fake_domains.sh RANKS_PER_DOMAIN PROGRAM ARGUMENTS...: runs under collectives_run. Tells PROGRAM that every
# RANKS_PER_DOMAIN ranks share a socket of their own.
per_domain=$1
shift
COLLECTIVES_DOMAIN=socket$((RANK / per_domain))
export COLLECTIVES_DOMAIN
exec "$@"
