// MPI's datatypes and ops, as the library sees them.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/types.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

/// Finds the handles of this MPI, which may be addresses. Before everything else here.
void init_types();

/// The predefined types that MPI allows sum, product, min and max for, and that the library has.
std::optional<DataType> arithmetic_type(MPI_Datatype) noexcept;
std::optional<ReduceOp> reduction(MPI_Op) noexcept;

/// One element of any datatype.
struct Layout {
  std::size_t bytes = 0;  ///< of its signature: equal on all ranks, whatever they call it
  MPI_Aint extent = 0;
  /// In memory as on the wire, so it needs no packing. Known of predefined types only: a derived one may be as long as
  /// its bytes and still change their order.
  bool dense = false;
};
/// Nothing for a type that MPI should complain about.
std::optional<Layout> layout_of(MPI_Datatype);

}  // namespace collectives::drop_in
