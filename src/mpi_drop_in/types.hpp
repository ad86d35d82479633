// Translation of datatypes and ops of MPI to those of this library. It is part of the drop-in, a library that users
// preload into an MPI program. The drop-in performs collectives of the program in place of MPI.
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/types.hpp"
#include "mpi_drop_in/basic_types.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

/// Looks up the predefined handles of MPI, which may be addresses. Must be called before the other functions of this
/// file.
void init_types();
/// Frees what init_types() has made.
void end_types() noexcept;

/// Returns an MPI communicator that contains only this process. If an MPI function gets this communicator, it returns
/// errors to its caller, and calls no error handler of the program.
MPI_Comm quiet_comm() noexcept;

/// Set of op classes. MPI defines which op classes are allowed for each predefined type.
using OpClasses = unsigned;
inline constexpr OpClasses kSums = 1, kOrders = 2, kLogical = 4, kBitwise = 8, kLocations = 16;
/// Predefined type of MPI in a reduction.
struct ReducedType {
  DataType type = DataType::u8;
  OpClasses ops = 0;  ///< op classes that MPI allows for the type
};
struct KnownOp {
  ReduceOp op = ReduceOp::sum;
  OpClasses op_class = kSums;
};
/// Returns the library's type for a predefined type of MPI. Returns nothing if the library lacks the type, or if MPI
/// allows no op of the library for it.
std::optional<ReducedType> reduced_type(MPI_Datatype) noexcept;
/// Returns the library's op, or nothing if there is none.
std::optional<KnownOp> known_op(MPI_Op) noexcept;

/// Layout of one element of a datatype, and the basic types of its data.
struct Layout {
  std::size_t bytes = 0;  ///< Bytes of data in one element, not counting gaps.
  MPI_Aint extent = 0;
  /// True: elements lie in memory as they are sent, so no packing is needed. Only predefined types are dense. A derived
  /// type without gaps may list its bytes in another order.
  bool dense = false;
  TypeSequence types = {};
};
/// Returns the layout, which is valid until the program frees the type. Returns null for MPI_DATATYPE_NULL
/// and for a type that is not committed. The layout
/// of a derived type is computed once, and then is an attribute of the type. A type of 2 GiB or more has more than
/// kMaxPackedBytes bytes in its layout.
const Layout* layout_of(MPI_Datatype);

/// Returns true if a loaded object other than MPI contains the name of a function that packs or unpacks data. Data of
/// type MPI_PACKED may then meet data of other types.
bool may_pack() noexcept;

}  // namespace collectives::drop_in
