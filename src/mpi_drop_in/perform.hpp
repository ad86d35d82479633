// Functions that perform an MPI call of a program by this library, or forward it to MPI. The head of decision.hpp
// explains the decision. The drop-in is a library that an MPI program preloads. It performs collectives of the program
// in place of MPI.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>
#include <string>

#include "mpi_drop_in/calls.hpp"
#include "mpi_drop_in/job.hpp"
#include "mpi_drop_in/non_blocking.hpp"
#include "mpi_drop_in/process.hpp"
#include "mpi_drop_in/statistics.hpp"

namespace collectives::drop_in {

/// Exception that is thrown after this rank has refused a call. The error must still be reported to the program.
struct Refused {
  int error_class = MPI_ERR_OTHER;
  std::string why = {};
};

/// Reports `error` in a line on stderr, and to the error handler of the MPI communicator. Returns the error code that
/// the MPI call returns. If the library has not reported the error to the peers, aborts the library's communicator, so
/// that all ranks fail.
int report(CommState& state, const std::exception& error) noexcept;
/// Reports that this rank has refused a call, on stderr and to the error handler. Returns the error code.
int report(const CommState& state, Kind kind, const Refused& refused) noexcept;
/// Publishes a refusal if MPI has refused a call that was forwarded to it. `code`: the error code of that call.
void refuse_as_mpi(CommState& state, Kind kind, int code) noexcept;

/// Decides whether the library performs a call. Examines the arguments only if the library can perform calls of the
/// communicator.
template <class Call>
Eligibility decide(const Call& call, CommState& state, Form form) {
  if (state.refused() != Reason::none) return {state.refused()};
  if (form == Form::non_blocking && !settings().non_blocking) return {Reason::non_blocking};
  Eligibility eligibility = call.eligibility(state);
  // If the call is too short for the library, all peers forward it. This rank then forwards it, too, even if one of its
  // arguments is wrong.
  const std::size_t bytes = eligibility.common_bytes();
  const bool is_short = bytes < kMinBytes[static_cast<std::size_t>(Call::kKind)];
  if (is_short && (eligibility.reason == Reason::none || (eligibility.reason == Reason::arguments && bytes > 0)))
    eligibility.reason = Reason::size;
  if (eligibility.reason == Reason::none) eligibility.reason = state.reason_to_forward(form == Form::blocking, bytes);
  // Peers with right arguments count the call, and may build the library's communicator in it. This rank does the same.
  if (eligibility.reason == Reason::arguments) state.reason_to_forward(form == Form::blocking, bytes);
  return eligibility;
}

/// Performs a call that the library does not perform, by forward(). Publishes a refusal if an argument is wrong, before
/// MPI sees the call. Reports an argument on which an MPI may crash, and then does not forward the call.
template <class Forward>
int forward_or_refuse(CommState& state, Kind kind, const Eligibility& eligibility, Forward&& forward) noexcept {
  if (eligibility.reason == Reason::arguments) {
    const WrongArgument& wrong = kWrong[static_cast<std::size_t>(eligibility.wrong)];
    if (state.refuse(kind, wrong.why) && wrong.error != MPI_SUCCESS)
      return report(state, kind, {wrong.error, std::string(wrong.why)});
    return forward();
  }
  const int code = forward();
  if (code != MPI_SUCCESS) refuse_as_mpi(state, kind, code);
  return code;
}

/// Publishes a refusal, and throws it.
[[noreturn]] void refuse(CommState& state, Kind kind, int error_class, const char* why);

/// Returns the job of a call. If this rank cannot make it, publishes a refusal and throws Refused.
template <class Call>
Job job_of(const Call& call, CommState& state) {
  try {
    return call.job(state);
  } catch (const MpiFailure& failure) {
    refuse(state, Call::kKind, failure.error_class, failure.what());
  } catch (const std::exception& error) {
    refuse(state, Call::kKind, MPI_ERR_OTHER, error.what());
  }
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
    code = forward_or_refuse(*state, Call::kKind, eligibility, forward);
  } else {
    try {
      take(*state);
    } catch (const Refused& refused) {
      code = report(*state, Call::kKind, refused);
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
    const Job job = job_of(call, state);
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
                 [&](CommState& state) { *request = begin(state, job_of(call, state)); });
}

}  // namespace collectives::drop_in
