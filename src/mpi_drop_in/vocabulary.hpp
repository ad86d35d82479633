// Error texts in the words of MPI. They are for programs into which users preload the drop-in, a library that performs
// collectives of the program in place of MPI. An example of an error text:
//
//   MPI_Bcast #17: rank 0 passed 16 x MPI_BYTE, rank 1 passed 4 x i32
#pragma once

namespace collectives::drop_in {

/// Makes error texts of this process name the functions and types of MPI.
void use_words_of_mpi() noexcept;

}  // namespace collectives::drop_in
