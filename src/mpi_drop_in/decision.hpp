// Whether a call is taken over. All ranks must decide alike, and nobody asks the others. So a decision rests only on
// what MPI demands to be equal on all ranks: the communicator, the op, the predefined type of a reduction, the root,
// and the bytes of a message's signature. It never rests on how a rank describes its memory: the map of a datatype,
// which may differ where only bytes are moved, addresses, alignment, or whether the call is in place.
//
// A call with arguments that are wrong at this rank alone is forwarded, so that MPI says so in its own way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  reduce_scatter_block,
  all_gather,
  all_gather_v,
  broadcast,
  barrier,
};
inline constexpr std::size_t kKinds = 8;
inline constexpr std::string_view kKindNames[kKinds] = {
    "Allreduce", "Reduce", "Reduce_scatter", "Reduce_scatter_block", "Allgather", "Allgatherv", "Bcast", "Barrier"};

/// Why a call is forwarded; `none`: it is taken over.
enum class Reason : std::uint8_t {
  none,
  young,         ///< the communicator has not seen enough calls to be worth building
  alone,         ///< a communicator of one rank
  inter,         ///< an inter-communicator
  foreign,       ///< some of its ranks do not belong to this MPI_COMM_WORLD
  unavailable,   ///< the library's communicator could not be built, or there are too many
  gpu,           ///< CUDA's driver is in the process of a rank: MPI may be given GPU memory
  size,          ///< no faster at this length
  empty,         ///< nothing to move
  type,          ///< a reduction of a type the library has not
  op,            ///< of an op it has not
  arguments,     ///< MPI may have something to say about them
  non_blocking,  ///< the MPI has no way to move the library's operations on in its own calls
};
inline constexpr std::size_t kReasons = 13;
inline constexpr std::string_view kReasonNames[kReasons] = {"taken over",
                                                            "young communicator",
                                                            "one rank",
                                                            "inter-communicator",
                                                            "ranks of another world",
                                                            "not built",
                                                            "CUDA",
                                                            "length",
                                                            "no data",
                                                            "type",
                                                            "op",
                                                            "arguments for MPI",
                                                            "non-blocking"};

/// What is equal on all ranks of a call.
struct Eligibility {
  Reason reason = Reason::none;  ///< why not, as far as the arguments say
  std::size_t bytes = 0;         ///< of the whole vector
};

/// Shorter ones an MPI sends ahead: the root of a broadcast, or all but the root of a reduction, are done before
/// anybody has come, which is faster in a row of them.
#ifdef MPICH
inline constexpr std::size_t kBroadcastAhead = (16U << 10U) + 1, kReducedAhead = 0;
#else
inline constexpr std::size_t kBroadcastAhead = 257, kReducedAhead = 257;
#endif
/// MPI counts the bytes of what it packs in ints.
inline constexpr std::size_t kMaxPackedBytes = std::numeric_limits<int>::max();
/// The shortest whole vector that is worth taking over, in bytes, by kind, as measured on one host against Open
/// MPI 4.1.4 and MPICH 4.0.2 (docs/mpi_drop_in.md).
inline constexpr std::size_t kMinBytes[kKinds] = {0, kReducedAhead, 0, 0, 0, 0, kBroadcastAhead, 0};

/// Blocking calls of a communicator that are forwarded before it is built (COLLECTIVES_MPI_AFTER): until they would
/// have saved about what building costs. So a program loses about that to a communicator at most, however soon it is
/// done with it, and gains nearly all there is to gain from one that stays (the ski-rental rule; Karlin et al.,
/// "Competitive snoopy caching", Algorithmica 3, 1988). On one host a call saves 0.1 to 0.3 us, and 0.1 us for each 512
/// bytes; building takes some 400 us.
inline constexpr int kCallsBeforeIntercept = 2000;
inline constexpr std::size_t kBytesPerCall = 512;
/// Communicators of the library that one process keeps at most.
inline constexpr int kMaxCommunicators = 64;

}  // namespace collectives::drop_in
