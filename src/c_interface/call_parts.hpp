// Helpers of C functions for collectives: the communicator of a handle, and the lengths of buffers from counts.
#pragma once

#include <cstddef>
#include <numeric>
#include <span>

#include "c_interface/handles.hpp"

namespace collectives::c {

inline Communicator& in(collectives_communicator* comm) { return require(comm, "comm").comm; }

/// Number of elements of the whole vector, and of this rank's part of the vector. If `whole` overflows, the C++ call
/// refuses the arguments.
struct Parts {
  std::size_t whole, mine;
};
inline Parts equal(const Communicator& comm, std::size_t count) {
  return {count * static_cast<std::size_t>(comm.size()), count};
}
inline std::span<const std::size_t> listed(const Communicator& comm, const std::size_t* counts) {
  return {&require(counts, "counts"), static_cast<std::size_t>(comm.size())};
}
inline Parts unequal(const Communicator& comm, std::span<const std::size_t> counts) {
  return {std::accumulate(counts.begin(), counts.end(), std::size_t{0}), counts[static_cast<std::size_t>(comm.rank())]};
}

}  // namespace collectives::c
