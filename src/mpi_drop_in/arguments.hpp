// Functions that check the arguments of an MPI call, and that translate arguments which several calls have in common.
// They are part of the drop-in, a library that users preload into an MPI program. The drop-in performs collectives of
// the program in place of MPI.
//
// A check returns which argument is wrong on this rank, or Wrong::none. The eligibility of a call states whether the
// drop-in can perform the call (decision.hpp). It depends on the results of the checks, and on properties that are
// equal on all ranks, such as the length of the data.
#pragma once

#include <cstddef>
#include <span>

#include "mpi_drop_in/communicators.hpp"
#include "mpi_drop_in/decision.hpp"
#include "mpi_drop_in/job.hpp"
#include "mpi_drop_in/mpi.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {

inline std::size_t times(int count, std::size_t bytes) noexcept { return static_cast<std::size_t>(count) * bytes; }

/// Converts a list of the program, which has one value per rank, to a span. Returns an empty span if the list is null.
inline std::span<const int> of_ranks(const int* values, const CommState& state) noexcept {
  return {values, values == nullptr ? 0 : static_cast<std::size_t>(state.size())};
}
std::size_t sum(std::span<const int> counts) noexcept;

// ---- checks ----

inline bool outside(int root, const CommState& state) noexcept { return root < 0 || root >= state.size(); }
bool negative(std::span<const int> counts) noexcept;
inline bool no_memory(const void* data, std::size_t bytes) noexcept { return data == nullptr && bytes > 0; }

/// Returns the eligibility of a call in which argument `wrong` is invalid, such as a negative count.
inline Eligibility refused(Wrong wrong) noexcept { return {.reason = Reason::arguments, .wrong = wrong}; }
/// Returns `eligibility`. If `wrong` names an argument, changes the result so that this rank refuses the call. If
/// `eligibility` already has a reason to forward the call, leaves it unchanged. All ranks then forward the call, and
/// MPI reports the wrong argument.
Eligibility unless(Wrong wrong, Eligibility eligibility) noexcept;
/// Returns the eligibility of a call without a reduction. `bytes`: length of the data of all ranks together. `longest`:
/// length of the longest data of one rank.
Eligibility moving(std::size_t bytes, std::size_t longest) noexcept;
/// Returns the eligibility of a call in which no rank knows the lengths of all blocks. `bytes`: length of this rank's
/// data.
inline Eligibility moving_locally(std::size_t bytes) noexcept { return {.local_bytes = true, .bytes = bytes}; }

Wrong wrong_send(const void* send, std::size_t bytes) noexcept;
/// Returns the buffer that MPI would refuse in a call that reads `read` bytes of `send` and writes `written` bytes of
/// `receive`.
Wrong wrong_pair(const void* send, const void* receive, std::size_t read, std::size_t written) noexcept;
Wrong wrong_alias(const void* send, const void* receive) noexcept;
/// Returns what MPI would refuse of the part that a rank sends to itself. `bytes`: the bytes that the rank receives
/// from itself. MPI forbids another number, and may not notice it.
Wrong wrong_part(const void* send, int send_count, MPI_Datatype send_type, std::size_t bytes);

// ---- translation ----

/// Returns the elements of a call that moves `count` elements of a datatype.
inline Elements elements_of(const Layout& layout, std::size_t count) noexcept {
  return settings().compares_types ? layout.types.elements(count) : Elements{};
}
/// Returns the number of elements of the library in `count` elements of a datatype.
inline std::size_t numbers_in(std::size_t count, const Layout& layout, DataType type) noexcept {
  return count * layout.bytes / size_of(type);
}
/// Changes the foreign type of the job if this rank sends other elements to itself than it receives, which MPI forbids.
/// The foreign type then differs from that of ranks that do what MPI demands.
void compare_own_part(Job& job, const Elements& sent, const Elements& received) noexcept;
/// Copies this rank's part if it overlaps the output. A part exactly at `offset` bytes in the output needs no copy,
/// because the library performs this call in place.
void keep_part_apart(Job& job, std::size_t offset);

}  // namespace collectives::drop_in
