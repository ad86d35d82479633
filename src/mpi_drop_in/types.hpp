// Translation of datatypes and ops of MPI to those of this library. The drop-in, a library that users preload into an
// MPI program, uses it.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/types.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

/// Looks up the handles of this MPI, which may be addresses. Must be called before the other functions here.
void init_types();

/// Returns the library's element type for a predefined type of MPI. Returns nothing if the library lacks the type. Also
/// returns nothing if MPI does not allow sum, product, min and max for it.
std::optional<DataType> arithmetic_type(MPI_Datatype) noexcept;
/// Returns the library's op, or nothing if the library lacks it.
std::optional<ReduceOp> reduction(MPI_Op) noexcept;

/// Layout of one element of a datatype.
struct Layout {
  std::size_t bytes = 0;  ///< Bytes of data in one element, not counting gaps.
  MPI_Aint extent = 0;
  /// True: elements lie in memory as they are sent, so no packing is needed. Only predefined types are dense. A derived
  /// type without gaps may list its bytes in another order.
  bool dense = false;
};
/// Returns the layout. Returns nothing for an invalid type. The call is then forwarded, and MPI reports the error.
std::optional<Layout> layout_of(MPI_Datatype);

}  // namespace collectives::drop_in
