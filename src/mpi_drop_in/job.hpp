// Job: an MPI call, translated for this library.
//
// A buffer is dense if its bytes lie in the order in which they are sent, without gaps. An input that is not dense is
// packed before the call. An output that is not dense is unpacked after the call. In calls without a reduction, ranks
// may describe the same data by different datatypes. The elements of these calls are therefore the basic types of which
// the datatypes consist (basic_types.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "core/call.hpp"
#include "mpi_drop_in/types.hpp"

namespace collectives::drop_in {

/// Call of the library with its arguments. If needed, `in` and `out` are additional buffers.
struct Job {
  Collective collective = Collective::barrier;
  ConstBuffer input = {};
  Buffer output = {};
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  bool has_counts = false;  ///< Call::has_counts
  /// Numbers of elements of the parts in a v-form, and the positions of the parts. If `displacements` is empty, the
  /// parts follow one another. If `counts` is empty, this rank does not need the lists.
  std::vector<std::size_t> counts = {}, displacements = {};
  std::vector<std::size_t> input_counts = {}, input_displacements = {};  ///< parts of the input of MPI_Alltoallv
  std::uint64_t foreign_type = 0;                                        ///< Call::foreign_type
  Options options = {.timeout = std::chrono::nanoseconds::max()};        ///< No deadline, as in MPI.
  /// Copy of input that is not dense or overlaps the output. Null: no copy is needed.
  std::unique_ptr<std::byte[]> in = {};
  std::unique_ptr<std::byte[]> out = {};
  std::function<void()> finish = {};  ///< Work of this rank after the operation. Empty: none.

  /// Returns the call, which refers to `counts`.
  Call call() const;
  /// Runs the call and blocks until it is finished.
  void run(Communicator&) const;
  /// Starts the call.
  Work begin(Communicator&) const;

  /// Returns the address of `count` elements if they are dense. If not, packs them into `in`, and returns the address
  /// of `in`.
  const std::byte* packed(const void* data, int count, MPI_Datatype, const Layout&);
  /// Copies the input to `in` if it overlaps the output.
  void keep_apart();
  /// Allocates `bytes` bytes in `out` for an output that is later unpacked or copied. Returns their address.
  std::byte* stage(std::size_t bytes);
};

/// Failure of a function of MPI that handles datatypes.
struct MpiFailure : std::runtime_error {
  MpiFailure(const char* function, int code);
  int error_class;
};

/// Returns MPI's description of an error class or code, without the newlines and the details of MPICH.
std::string error_text(int code);

/// Packs `count` elements into the `bytes` bytes at `to`.
void pack(const void* from, int count, MPI_Datatype, std::byte* to, std::size_t bytes);
/// Unpacks `count` elements from the `bytes` bytes at `from`.
void unpack(const std::byte* from, std::size_t bytes, void* to, int count, MPI_Datatype);

/// Returns a copy of a datatype that outlives the program's handle. A pending operation needs the datatype until its
/// end.
std::shared_ptr<MPI_Datatype> held(MPI_Datatype);

}  // namespace collectives::drop_in
