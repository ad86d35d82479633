// Functions that check and translate arguments of an MPI call. They are part of the drop-in, a library that users
// preload into an MPI program. The drop-in performs collectives of the program in place of MPI.
//
// A check returns which argument is wrong (Wrong), or Wrong::none. If an argument is wrong, the drop-in forwards the
// call to MPI, which reports the error to the program.
#include "mpi_drop_in/arguments.hpp"

#include <algorithm>
#include <numeric>

#include "core/signature.hpp"

namespace collectives::drop_in {
namespace {

#ifdef MPICH
// Whether this MPI reports an error if the send buffer and the receive buffer are the same. MPICH does.
constexpr bool kAliasIsAnError = true;
#else
constexpr bool kAliasIsAnError = false;
#endif

}  // namespace

std::size_t sum(std::span<const int> counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

bool negative(std::span<const int> counts) noexcept {
  return std::ranges::any_of(counts, [](int count) { return count < 0; });
}

Eligibility unless(Wrong wrong, Eligibility eligibility) noexcept {
  if (wrong == Wrong::none || eligibility.reason != Reason::none) return eligibility;
  eligibility.reason = Reason::arguments;
  eligibility.wrong = wrong;
  return eligibility;
}

Eligibility moving(std::size_t bytes, std::size_t longest) noexcept {
  return {.reason = bytes == 0                  ? Reason::empty
                    : longest > kMaxPackedBytes ? Reason::size
                                                : Reason::none,
          .bytes = bytes};
}

Wrong wrong_send(const void* send, std::size_t bytes) noexcept {
  return no_memory(send, bytes) ? Wrong::send_buffer : Wrong::none;
}

Wrong wrong_pair(const void* send, const void* receive, std::size_t read, std::size_t written) noexcept {
  if (receive == MPI_IN_PLACE) return Wrong::in_place;
  if (no_memory(receive, written)) return Wrong::receive_buffer;
  if (kAliasIsAnError && send == receive && read > 0) return Wrong::alias;
  return send == MPI_IN_PLACE ? Wrong::none : wrong_send(send, read);
}

Wrong wrong_alias(const void* send, const void* receive) noexcept {
  return kAliasIsAnError && send == receive ? Wrong::alias : Wrong::none;
}

Wrong wrong_part(const void* send, int send_count, MPI_Datatype send_type, std::size_t bytes) {
  if (send == MPI_IN_PLACE) return Wrong::none;
  const Layout* const layout = layout_of(send_type);
  if (layout == nullptr) return Wrong::send_type;
  if (send_count < 0) return Wrong::send_count;
  if (times(send_count, layout->bytes) != bytes) return Wrong::part;
  return layout->dense ? wrong_send(send, bytes) : Wrong::none;
}

void compare_own_part(Job& job, const Elements& sent, const Elements& received) noexcept {
  if (sent == received) return;
  job.foreign_type = mix(job.foreign_type + mix(sent.foreign_type + size_of(sent.type))) | kSeveralTypes;
}

void keep_part_apart(Job& job, std::size_t offset) {
  if (job.input.data != static_cast<const std::byte*>(job.output.data) + offset) job.keep_apart();
}

}  // namespace collectives::drop_in
