// The header mpi.h of the MPI for which the drop-in is compiled. This file makes the symbols of MPI weak. The drop-in
// is a library that users preload into an MPI program. It performs collectives of the program in place of MPI.
//
// A preloaded library is also loaded into mpirun, into shells and into programs of another MPI. These processes lack
// functions and constants of this MPI. If a weak symbol is missing, its address is null, and the dynamic linker reports
// no error. Users can therefore preload the drop-in into any process. The drop-in itself is not linked to MPI.
#pragma once

#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#define OMPI_DECLSPEC __attribute__((weak, visibility("default")))
#pragma GCC visibility push(default)
#include <mpi.h>
#pragma GCC visibility pop

#ifdef MPICH
#pragma weak PMPI_Allgather
#pragma weak PMPI_Allgatherv
#pragma weak PMPI_Allreduce
#pragma weak PMPI_Alltoall
#pragma weak PMPI_Alltoallv
#pragma weak PMPI_Barrier
#pragma weak PMPI_Bcast
#pragma weak PMPI_Comm_call_errhandler
#pragma weak PMPI_Comm_create_keyval
#pragma weak PMPI_Comm_dup
#pragma weak PMPI_Comm_free
#pragma weak PMPI_Comm_free_keyval
#pragma weak PMPI_Comm_get_attr
#pragma weak PMPI_Comm_group
#pragma weak PMPI_Comm_rank
#pragma weak PMPI_Comm_set_attr
#pragma weak PMPI_Comm_set_errhandler
#pragma weak PMPI_Comm_size
#pragma weak PMPI_Comm_test_inter
#pragma weak PMPI_Error_class
#pragma weak PMPI_Error_string
#pragma weak PMPI_Exscan
#pragma weak PMPI_Gather
#pragma weak PMPI_Gatherv
#pragma weak PMPI_Get_library_version
#pragma weak PMPI_Get_processor_name
#pragma weak PMPI_Grequest_complete
#pragma weak PMPI_Grequest_start
#pragma weak PMPI_Group_free
#pragma weak PMPI_Group_translate_ranks
#pragma weak PMPI_Iallgather
#pragma weak PMPI_Iallgatherv
#pragma weak PMPI_Iallreduce
#pragma weak PMPI_Ialltoall
#pragma weak PMPI_Ialltoallv
#pragma weak PMPI_Ibarrier
#pragma weak PMPI_Ibcast
#pragma weak PMPI_Iexscan
#pragma weak PMPI_Igather
#pragma weak PMPI_Igatherv
#pragma weak PMPI_Init
#pragma weak PMPI_Init_thread
#pragma weak PMPI_Ireduce
#pragma weak PMPI_Ireduce_scatter
#pragma weak PMPI_Ireduce_scatter_block
#pragma weak PMPI_Iscan
#pragma weak PMPI_Iscatter
#pragma weak PMPI_Iscatterv
#pragma weak PMPI_Pack
#pragma weak PMPI_Reduce
#pragma weak PMPI_Reduce_scatter
#pragma weak PMPI_Reduce_scatter_block
#pragma weak PMPI_Request_get_status
#pragma weak PMPI_Scan
#pragma weak PMPI_Scatter
#pragma weak PMPI_Scatterv
#pragma weak PMPI_Status_set_cancelled
#pragma weak PMPI_Status_set_elements
#pragma weak PMPI_Test
#pragma weak PMPI_Type_commit
#pragma weak PMPI_Type_create_hindexed
#pragma weak PMPI_Type_create_keyval
#pragma weak PMPI_Type_dup
#pragma weak PMPI_Type_free
#pragma weak PMPI_Type_get_attr
#pragma weak PMPI_Type_get_contents
#pragma weak PMPI_Type_get_envelope
#pragma weak PMPI_Type_get_extent
#pragma weak PMPI_Type_set_attr
#pragma weak PMPI_Type_size
#pragma weak PMPI_Unpack
#pragma weak PMPI_Wait
#endif
