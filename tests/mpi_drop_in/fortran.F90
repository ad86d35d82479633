! Collectives from Fortran, by the mpi module, with -DF08 by mpi_f08, or with -DMPIF by mpif.h: in place, absent error
! arguments, all non-blocking ones.
program fortran
#if defined(F08)
  use mpi_f08
#elif !defined(MPIF)
  use mpi
#endif
  implicit none
#ifdef MPIF
  include 'mpif.h'
#endif
  integer :: rank, ranks, error, i, place, wrong, gathered(64), counts(64), places(64), part(2), spaced(96)
  double precision :: mine(4000), total(4000)
#ifdef F08
  type(MPI_Request) :: request, requests(16)
#else
  integer :: request, requests(16)
#endif

  wrong = 0
#ifdef MPIF
  call MPI_Init_thread(MPI_THREAD_SINGLE, place, error)
#else
  call MPI_Init(error)
#endif
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  do i = 1, 3
    mine = rank + 1
    call MPI_Allreduce(mine, total, 4000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(total /= ranks * (ranks + 1) / 2) .or. error /= MPI_SUCCESS) wrong = wrong + 1
    call MPI_Allreduce(MPI_IN_PLACE, mine, 4000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(mine /= total)) wrong = wrong + 1
    gathered = -1
    gathered(rank + 1) = rank
    call MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, gathered, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    if (gathered(ranks) /= ranks - 1 .or. gathered(1) /= 0) wrong = wrong + 1
    if (rank == 0) then
      call MPI_Reduce(MPI_IN_PLACE, mine, 4000, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, error)
    else
      call MPI_Reduce(mine, total, 4000, MPI_DOUBLE_PRECISION, MPI_MAX, 0, MPI_COMM_WORLD, error)
    end if
    if (mine(1) /= ranks * (ranks + 1) / 2) wrong = wrong + 1
    gathered = rank
    counts = 2
    call MPI_Reduce_scatter(gathered, part, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(part /= ranks * (ranks - 1) / 2)) wrong = wrong + 1
    part = -1
    call MPI_Reduce_scatter_block(gathered, part, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    if (any(part /= ranks * (ranks - 1) / 2)) wrong = wrong + 1
    places(1:ranks) = [(3 * place, place = 0, ranks - 1)]
    spaced = -1
    call MPI_Allgatherv(gathered, 2, MPI_INTEGER, spaced, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
    if (spaced(1) /= 0 .or. spaced(3) /= -1 .or. spaced(3 * ranks - 1) /= ranks - 1) wrong = wrong + 1
    total = rank
    call MPI_Bcast(total, 4000, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, error)
    if (any(total /= ranks - 1)) wrong = wrong + 1
    call MPI_Bcast(part, 2, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
    total = 0
    call MPI_Iallreduce(mine, total, 4000, MPI_DOUBLE_PRECISION, MPI_MIN, MPI_COMM_WORLD, request, error)
    call MPI_Wait(request, MPI_STATUS_IGNORE, error)
    if (total(4000) /= mine(4000)) wrong = wrong + 1
    call all_non_blocking()
    call blocks()
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

contains

  subroutine all_non_blocking()
    integer, asynchronous :: ones(100), sums(100), reduced(100), scattered(2), block(2), everyone(128)
    integer, asynchronous :: apart(96), said(500)
    ones = rank
    said = rank
    apart = -1
    call MPI_Iallreduce(ones, sums, 100, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1), error)
    call MPI_Ireduce(ones, reduced, 100, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, requests(2), error)
    call MPI_Ireduce_scatter(ones, scattered, counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(3), error)
    call MPI_Ireduce_scatter_block(ones, block, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(4), error)
    call MPI_Iallgather(ones, 2, MPI_INTEGER, everyone, 2, MPI_INTEGER, MPI_COMM_WORLD, requests(5), error)
    call MPI_Iallgatherv(ones, 2, MPI_INTEGER, apart, counts, places, MPI_INTEGER, MPI_COMM_WORLD, requests(6), error)
    call MPI_Ibcast(said, 500, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, requests(7), error)
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(8), error)
    call MPI_Waitall(8, requests, MPI_STATUSES_IGNORE, error)
    if (any(sums /= ranks * (ranks - 1) / 2)) wrong = wrong + 1
    if (rank == 0 .and. any(reduced /= sums)) wrong = wrong + 1
    if (any(scattered /= sums(1)) .or. any(block /= sums(1))) wrong = wrong + 1
    if (everyone(1) /= 0 .or. everyone(2 * ranks) /= ranks - 1) wrong = wrong + 1
    if (apart(1) /= 0 .or. apart(3) /= -1 .or. apart(3 * ranks - 1) /= ranks - 1) wrong = wrong + 1
    if (any(said /= ranks - 1)) wrong = wrong + 1
  end subroutine

  ! Calls whose buffers consist of a block of two integers for each rank, and scans, in both forms.
  subroutine blocks()
    integer, asynchronous :: mine(128), swapped(128), swapped_v(128), all(128), all_v(96), one(2), one_v(2), upto(4)
    integer, asynchronous :: before(4), offsets(64)
    integer :: form, r
    mine(1:2 * ranks) = [(100 * rank + r / 2, r = 0, 2 * ranks - 1)]
    offsets(1:ranks) = [(2 * r, r = 0, ranks - 1)]
    do form = 1, 2
      swapped = -1; swapped_v = -1; all = -1; all_v = -1; one = -1; one_v = -1; upto = -1; before = -1
      if (form == 1) then
        call MPI_Alltoall(mine, 2, MPI_INTEGER, swapped, 2, MPI_INTEGER, MPI_COMM_WORLD, error)
        call MPI_Alltoallv(mine, counts, offsets, MPI_INTEGER, swapped_v, counts, offsets, MPI_INTEGER, &
                           MPI_COMM_WORLD, error)
        call MPI_Gather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
        call MPI_Gatherv(mine, 2, MPI_INTEGER, all_v, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
        call MPI_Scatter(mine, 2, MPI_INTEGER, one, 2, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
        if (rank == 0) then
          one_v = 0
          call MPI_Scatterv(mine, counts, offsets, MPI_INTEGER, MPI_IN_PLACE, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
        else
          call MPI_Scatterv(mine, counts, offsets, MPI_INTEGER, one_v, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
        end if
        call MPI_Scan(mine, upto, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
        call MPI_Exscan(mine, before, 2, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, error)
      else
        call MPI_Ialltoall(mine, 2, MPI_INTEGER, swapped, 2, MPI_INTEGER, MPI_COMM_WORLD, requests(1), error)
        call MPI_Ialltoallv(mine, counts, offsets, MPI_INTEGER, swapped_v, counts, offsets, MPI_INTEGER, &
                            MPI_COMM_WORLD, requests(2), error)
        call MPI_Igather(mine, 2, MPI_INTEGER, all, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(3), error)
        call MPI_Igatherv(mine, 2, MPI_INTEGER, all_v, counts, places, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(4), &
                          error)
        call MPI_Iscatter(mine, 2, MPI_INTEGER, one, 2, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, requests(5), error)
        call MPI_Iscatterv(mine, counts, offsets, MPI_INTEGER, one_v, 2, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(6), &
                           error)
        call MPI_Iscan(mine, upto, 2, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, requests(7), error)
        call MPI_Iexscan(mine, before, 2, MPI_INTEGER, MPI_BOR, MPI_COMM_WORLD, requests(8), error)
        call MPI_Waitall(8, requests, MPI_STATUSES_IGNORE, error)
      end if
      if (swapped(2 * ranks) /= 100 * (ranks - 1) + rank .or. any(swapped /= swapped_v)) wrong = wrong + 1
      if (rank == 0 .and. (all(2 * ranks) /= 100 * (ranks - 1) .or. all(2 * ranks + 1) /= -1)) wrong = wrong + 1
      if (rank == 0 .and. (all_v(3 * ranks - 1) /= 100 * (ranks - 1) .or. all_v(3) /= -1)) wrong = wrong + 1
      if (any(one /= 100 * (ranks - 1) + rank) .or. any(one_v /= rank)) wrong = wrong + 1
      if (upto(1) /= 100 * rank .or. upto(3) /= -1) wrong = wrong + 1
      if (rank == 1 .and. before(1) /= 0 .or. rank == 0 .and. before(1) /= -1) wrong = wrong + 1
    end do
  end subroutine

end program
