// Error texts in the words of MPI, for programs into which users preload the drop-in. The drop-in library performs
// collectives in place of MPI. For example:
//
//   MPI_Bcast #17: rank 0 passed 16 x MPI_BYTE, rank 1 passed 4 x i32
#pragma once

namespace collectives::drop_in {

/// Makes error texts of this process name the functions and types of MPI.
void use_words_of_mpi() noexcept;

}  // namespace collectives::drop_in
