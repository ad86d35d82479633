// Decision whether the library performs (takes over) an MPI call, or the drop-in forwards the call to MPI. The drop-in
// is a library that users preload into an MPI program. It performs collectives of the program in place of MPI.
//
// All ranks must decide equally, and they do not communicate for that purpose. A decision therefore depends only on
// values that MPI requires to be equal on all ranks. These are the communicator, the op, the predefined type of a
// reduction, the root, and the length of the data in bytes.
//
// In MPI_Gatherv, MPI_Scatterv and MPI_Alltoallv, no rank knows the lengths of all parts. The decision then depends on
// the communicator and the root alone. The library takes over these calls at any length, even if they move no data.
//
// A decision never depends on how a rank describes its memory. The decision ignores addresses, alignment, and whether
// the call is in place. It also ignores how a datatype arranges bytes in memory, because ranks may use different
// datatypes in calls without a reduction.
//
// The only exception is a call whose arguments are wrong on one rank. This rank refuses the call: it publishes a
// refusal in the library's communicator, and then forwards the call, so that MPI reports the error. Other ranks that
// perform the call get an error, which names the refusal. If the arguments are wrong in the same way on all ranks, all
// ranks publish equal refusals, and the library's communicator stays usable. A rank may also forward a call for another
// reason. If MPI then refuses the call, the rank publishes a refusal, too.
//
// Price: a property of one rank, such as memory that needs no packing, cannot influence the decision. MPI forbids that
// ranks pass different lengths. If they do, they may decide differently before any check finds the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "collectives/types.hpp"
#include "mpi_drop_in/mpi.hpp"

namespace collectives::drop_in {

/// Collective of MPI.
enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  reduce_scatter_block,
  all_gather,
  all_gather_v,
  broadcast,
  barrier,
  all_to_all,
  all_to_all_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  scan,
  exclusive_scan,
};
inline constexpr std::size_t kKinds = 16;
inline constexpr std::string_view kKindNames[kKinds] = {
    "MPI_Allreduce", "MPI_Reduce",     "MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
    "MPI_Allgather", "MPI_Allgatherv", "MPI_Bcast",          "MPI_Barrier",
    "MPI_Alltoall",  "MPI_Alltoallv",  "MPI_Gather",         "MPI_Gatherv",
    "MPI_Scatter",   "MPI_Scatterv",   "MPI_Scan",           "MPI_Exscan"};

constexpr Collective collective_of(Kind kind) noexcept {
  switch (kind) {
    case Kind::all_reduce: return Collective::all_reduce;
    case Kind::reduce: return Collective::reduce;
    case Kind::reduce_scatter:
    case Kind::reduce_scatter_block: return Collective::reduce_scatter;
    case Kind::all_gather:
    case Kind::all_gather_v: return Collective::all_gather;
    case Kind::broadcast: return Collective::broadcast;
    case Kind::all_to_all:
    case Kind::all_to_all_v: return Collective::all_to_all;
    case Kind::gather:
    case Kind::gather_v: return Collective::gather;
    case Kind::scatter:
    case Kind::scatter_v: return Collective::scatter;
    case Kind::scan: return Collective::scan;
    case Kind::exclusive_scan: return Collective::exclusive_scan;
    case Kind::barrier: break;
  }
  return Collective::barrier;
}
/// Returns whether calls of this kind list the lengths of all parts.
constexpr bool has_counts(Kind kind) noexcept {
  return kind == Kind::reduce_scatter || kind == Kind::all_gather_v || kind == Kind::all_to_all_v ||
         kind == Kind::gather_v || kind == Kind::scatter_v;
}
/// Returns the kind of a call of the library.
constexpr Kind kind_of(Collective collective, bool with_counts) noexcept {
  for (std::size_t i = 0; i < kKinds; ++i)
    if (const auto kind = static_cast<Kind>(i); collective_of(kind) == collective && has_counts(kind) == with_counts)
      return kind;
  return Kind::barrier;
}

/// Reason why a call is forwarded to MPI. `none`: the library performs it.
enum class Reason : std::uint8_t {
  none,
  young,         ///< The communicator has had too few calls so far. The library builds its own communicator later.
  alone,         ///< The communicator has one rank.
  inter,         ///< The communicator is an inter-communicator.
  foreign,       ///< Some ranks of the communicator do not belong to this MPI_COMM_WORLD.
  unavailable,   ///< The library's communicator could not be built, or there are too many.
  gpu,           ///< CUDA's driver is loaded in the process of a rank, so buffers may be in GPU memory.
  size,          ///< The library is not faster at this length, or cannot pack data of this length.
  empty,         ///< There is no data to move.
  type,          ///< The library lacks the type of the reduction.
  op,            ///< The library lacks the op.
  arguments,     ///< The arguments look wrong, and MPI reports the error.
  non_blocking,  ///< This MPI does not progress the library's operations in its own calls.
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

/// Argument of this rank that is wrong.
enum class Wrong : std::uint8_t {
  none,
  count,
  send_count,
  counts,
  displacements,
  buffer,
  send_buffer,
  receive_buffer,
  root,
  type,
  send_type,
  op,
  in_place,
  alias,
  part,
  send_counts,
};
struct WrongArgument {
  std::string_view why;
  /// Class of the error that the drop-in reports itself, because an MPI may crash on the argument. MPI_SUCCESS: the
  /// drop-in forwards the call, and MPI reports the error.
  int error = MPI_SUCCESS;
};
inline constexpr WrongArgument kWrong[] = {{""},
                                           {"the count is negative", MPI_ERR_COUNT},
                                           {"the send count is negative", MPI_ERR_COUNT},
                                           {"the list of counts is null", MPI_ERR_ARG},
                                           {"the list of displacements is null", MPI_ERR_ARG},
                                           {"the buffer is null", MPI_ERR_BUFFER},
                                           {"the send buffer is null", MPI_ERR_BUFFER},
                                           {"the receive buffer is null", MPI_ERR_BUFFER},
                                           {"the root is no rank"},
                                           {"the datatype is null or not committed"},
                                           {"the send datatype is null or not committed"},
                                           {"the op is MPI_OP_NULL"},
                                           {"MPI_IN_PLACE stands for a buffer that cannot be in place"},
                                           {"the send buffer lies in the receive buffer"},
                                           {"the rank sends more or fewer bytes than it receives of itself"},
                                           {"the list of send counts or of their displacements is null", MPI_ERR_ARG}};

/// Properties of a call that are equal on all ranks, except `wrong` and local bytes. They fit into two registers.
struct Eligibility {
  Reason reason = Reason::none;  ///< Reason to forward the call, judged by its arguments.
  Wrong wrong = Wrong::none;     ///< Argument because of which `reason` is Reason::arguments.
  bool local_bytes = false;      ///< Whether `bytes` are those of this rank alone. Decisions then ignore them.
  std::size_t bytes = 0;         ///< Bytes of the whole vector.

  /// Returns the bytes on which a decision may depend.
  constexpr std::size_t common_bytes() const noexcept { return local_bytes ? 0 : bytes; }
};

/// Shortest whole vectors that are taken over, in bytes, of calls in which some ranks need not wait for others.
///
/// MPI sends shorter vectors without waiting for the receiver. The root of a broadcast or scatter therefore returns
/// before other ranks have arrived. In a reduction and a gather, all ranks but the root return early. In a scan, the
/// first ranks do. In a series of such calls, MPI is faster for this reason.
#ifdef MPICH
inline constexpr std::size_t kBroadcastAhead = (16U << 10U) + 1, kReducedAhead = 0, kBlocksAhead = kBroadcastAhead;
#else
inline constexpr std::size_t kBroadcastAhead = 257, kReducedAhead = 257, kBlocksAhead = 513;
#endif
/// Limit of packed bytes, because MPI counts them in ints.
inline constexpr std::size_t kMaxPackedBytes = std::numeric_limits<int>::max();
/// Shortest whole vector that is taken over, in bytes, for each kind. The values were measured on one host against Open
/// MPI 4.1.4 and MPICH 4.0.2 (docs/mpi_drop_in.md).
///
/// The values of v-forms are 0, because their lengths are not known. Short v-forms take about 1 us longer than by MPI.
inline constexpr std::size_t kMinBytes[kKinds] = {0,
                                                  kReducedAhead,
                                                  0,
                                                  0,
                                                  0,
                                                  0,
                                                  kBroadcastAhead,
                                                  0,
                                                  0,
                                                  0,
                                                  kBlocksAhead,
                                                  0,
                                                  kBlocksAhead,
                                                  0,
                                                  kReducedAhead,
                                                  kReducedAhead};

/// Number of blocking calls of an MPI communicator that are forwarded before the library's communicator is built
/// (COLLECTIVES_MPI_AFTER).
///
/// In so many calls, the library would have saved about as much time as building takes. A program that frees its
/// communicator early loses at most about this time. A program that keeps its communicator gains almost the full
/// advantage. This is the ski-rental rule (Karlin et al., "Competitive snoopy caching", Algorithmica 3, 1988).
///
/// On one host a call saves 0.1 to 0.3 us, and 0.1 us for each 512 bytes. Building takes about 400 us.
inline constexpr int kCallsBeforeIntercept = 2000;
inline constexpr std::size_t kBytesPerCall = 512;
/// Maximum number of the library's communicators in one process.
inline constexpr int kMaxCommunicators = 64;

}  // namespace collectives::drop_in
