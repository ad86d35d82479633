! Collectives from Fortran, by the mpi module or, with -DF08, by mpi_f08: in place, absent error arguments, non-blocking.
program fortran
#ifdef F08
  use mpi_f08
#else
  use mpi
#endif
  implicit none
  integer :: rank, ranks, error, i, wrong, gathered(64), counts(64), part(2)
  double precision :: mine(1000), total(1000)
#ifdef F08
  type(MPI_Request) :: request
#else
  integer :: request
#endif

  wrong = 0
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  do i = 1, 3
    mine = rank + 1
    call MPI_Allreduce(mine, total, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(total /= ranks * (ranks + 1) / 2) .or. error /= MPI_SUCCESS) wrong = wrong + 1
    call MPI_Allreduce(MPI_IN_PLACE, mine, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(mine /= total)) wrong = wrong + 1
    gathered = -1
    gathered(rank + 1) = rank
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    if (gathered(ranks) /= ranks - 1 .or. gathered(1) /= 0) wrong = wrong + 1
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, mine, 1000, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, error)
    else
      call MPI_Reduce(mine, total, 1000, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, error)
    end if
    if (mine(1) /= ranks * (ranks + 1) / 2) wrong = wrong + 1
    gathered = rank
    counts = 2
    call MPI_Reduce_scatter(gathered, part, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(part /= ranks * (ranks - 1) / 2)) wrong = wrong + 1
    call MPI_Bcast(part, 2, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
    total = 0
    call MPI_Iallreduce(mine, total, 1000, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, request, error)
    call MPI_Wait(request, MPI_STATUS_IGNORE, error)
    if (total(1000) /= mine(1000)) wrong = wrong + 1
#ifdef F08
    call MPI_Barrier(MPI_COMM_WORLD)
    call MPI_Bcast(part, 2, MPI_INTEGER, 0, MPI_COMM_WORLD)
#else
    call MPI_Barrier(MPI_COMM_WORLD, error)
#endif
  end do
  call MPI_Finalize(error)
  if (wrong /= 0) then
    print *, 'rank', rank, ': wrong', wrong
    stop 1
  end if
end program
