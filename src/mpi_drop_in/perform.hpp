// Functions that perform an MPI call of a program by this library or by MPI, as decision.hpp defines. The drop-in is a
// library that users preload into an MPI program. It performs collectives of the program in place of MPI.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>

#include "mpi_drop_in/calls.hpp"
#include "mpi_drop_in/non_blocking.hpp"
#include "mpi_drop_in/process.hpp"
#include "mpi_drop_in/statistics.hpp"

namespace collectives::drop_in {

/// Reports `error` in a line on stderr and to the error handler of the MPI communicator. Returns the error code that
/// the MPI call returns. If the error concerns this rank alone, the library's communicator is aborted, so that all
/// ranks fail.
int report(CommState& state, const std::exception& error) noexcept;

/// Decides whether the library performs a call. Examines the arguments only if the library can perform calls of the
/// communicator.
template <class Call>
Eligibility decide(const Call& call, CommState& state, Form form) {
  if (state.refused() != Reason::none) return {state.refused()};
  if (form == Form::non_blocking && !settings().non_blocking) return {Reason::non_blocking};
  Eligibility eligibility = call.eligibility(state);
  if (eligibility.reason == Reason::none && eligibility.bytes < kMinBytes[static_cast<std::size_t>(Call::kKind)])
    eligibility.reason = Reason::size;
  if (eligibility.reason == Reason::none)
    eligibility.reason = state.reason_to_forward(form == Form::blocking, eligibility.bytes);
  return eligibility;
}

/// Calls take(state) if the library performs the call, or forward() if MPI does. Returns the error code of the call.
template <class Call, class Forward, class Take>
int perform(const Call& call, Form form, MPI_Comm comm, Forward&& forward, Take&& take) noexcept {
  if (comm == MPI_COMM_NULL) return forward();
  CommState* const state = find(comm);
  if (state == nullptr) return forward();
  using Clock = std::chrono::steady_clock;
  const bool timed = settings().stats;
  const auto start = timed ? Clock::now() : Clock::time_point{};
  Eligibility eligibility = decide(call, *state, form);
  int code = MPI_SUCCESS;
  if (eligibility.reason != Reason::none) {
    code = forward();
  } else {
    try {
      take(*state);
    } catch (const std::exception& error) {
      code = report(*state, error);
    }
  }
  if (timed) count(form, Call::kKind, eligibility.reason, eligibility.bytes, Clock::now() - start);
  return code;
}

template <class Call, class Forward>
int blocking(const Call& call, MPI_Comm comm, Forward&& forward) noexcept {
  return perform(call, Form::blocking, comm, forward, [&](CommState& state) {
    const Job job = call.job(state);
    {
      const std::lock_guard lock(state);
      job.run(state.communicator());
    }
    if (job.finish) job.finish();
  });
}

template <class Call, class Forward>
int non_blocking(const Call& call, MPI_Comm comm, MPI_Request* request, Forward&& forward) noexcept {
  return perform(call, Form::non_blocking, comm, forward,
                 [&](CommState& state) { *request = begin(state, call.job(state)); });
}

}  // namespace collectives::drop_in
