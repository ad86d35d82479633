// One call as the library performs it. Memory that is not dense is packed before and unpacked afterwards; ranks may
// describe the same bytes by different datatypes, so what only moves travels as bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/communicator.hpp"
#include "mpi_drop_in/types.hpp"

namespace collectives::drop_in {

struct Job {
  Collective collective = Collective::barrier;
  ConstBuffer input = {};
  Buffer output = {};
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;
  std::vector<std::size_t> counts = {};                            ///< of the v-forms, in elements
  Options options = {.timeout = std::chrono::nanoseconds::max()};  ///< as long as MPI's own calls wait
  std::unique_ptr<std::byte[]> in = {};                            ///< staging, where memory is not dense or overlaps
  std::unique_ptr<std::byte[]> out = {};
  std::function<void()> finish = {};  ///< what is left to do at this rank afterwards; empty: nothing

  void run(Communicator&) const;
  Work begin(Communicator&) const;

  /// `count` elements as they travel: where they are if they are dense, else packed into `in`.
  const std::byte* packed(const void* data, int count, MPI_Datatype, const Layout&);
  /// Makes `in` a copy of the input where it and the output overlap without being in place.
  void keep_apart();
  /// `bytes` of staging for the output.
  std::byte* stage(std::size_t bytes);
};

/// What unpacks `count` elements at `from`.
void unpack(const std::byte* from, std::size_t bytes, void* to, int count, MPI_Datatype);

/// A datatype that outlives the program's handle: a pending operation needs it to the end.
std::shared_ptr<MPI_Datatype> held(MPI_Datatype);

}  // namespace collectives::drop_in
