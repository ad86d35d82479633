// From the call of the program to the library or to MPI.
#pragma once

#include <chrono>
#include <exception>
#include <mutex>

#include "mpi_drop_in/calls.hpp"
#include "mpi_drop_in/non_blocking.hpp"
#include "mpi_drop_in/process.hpp"
#include "mpi_drop_in/statistics.hpp"

namespace collectives::drop_in {

/// Tells `error` in a line on stderr, then to the error handler of the communicator; what is left to do is to return
/// the result. An error of this rank alone reaches the others by an abort of the library's communicator.
int report(Taken& taken, const std::exception& error) noexcept;

/// The arguments of a call are looked at only where its communicator may have it taken over.
template <class Call>
Asked decide(const Call& call, Taken& taken, Form form) {
  if (taken.refused() != Reason::none) return {taken.refused()};
  if (form == Form::non_blocking && !settings().non_blocking) return {Reason::non_blocking};
  Asked asked = call.asked(taken);
  if (asked.reason == Reason::none && asked.bytes < kLeast[static_cast<std::size_t>(Call::kKind)])
    asked.reason = Reason::size;
  if (asked.reason == Reason::none) asked.reason = taken.admit(form == Form::blocking, asked.bytes);
  return asked;
}

/// Performs a call by `take(taken)`, or has `forward()` do it.
template <class Call, class Forward, class Take>
int perform(const Call& call, Form form, MPI_Comm comm, Forward&& forward, Take&& take) noexcept {
  if (comm == MPI_COMM_NULL) return forward();
  Taken* const taken = find(comm);
  if (taken == nullptr) return forward();
  using Clock = std::chrono::steady_clock;
  const bool timed = settings().stats;
  const auto start = timed ? Clock::now() : Clock::time_point{};
  Asked asked = decide(call, *taken, form);
  int code = MPI_SUCCESS;
  if (asked.reason != Reason::none) {
    code = forward();
  } else {
    try {
      take(*taken);
    } catch (const std::exception& error) {
      code = report(*taken, error);
    }
  }
  if (timed) count(form, Call::kKind, asked.reason, asked.bytes, Clock::now() - start);
  return code;
}

template <class Call, class Forward>
int blocking(const Call& call, MPI_Comm comm, Forward&& forward) noexcept {
  return perform(call, Form::blocking, comm, forward, [&](Taken& taken) {
    const Job job = call.job(taken);
    {
      const std::lock_guard lock(taken);
      job.run(taken.communicator());
    }
    if (job.finish) job.finish();
  });
}

template <class Call, class Forward>
int non_blocking(const Call& call, MPI_Comm comm, MPI_Request* request, Forward&& forward) noexcept {
  return perform(call, Form::non_blocking, comm, forward,
                 [&](Taken& taken) { *request = begin(taken, call.job(taken)); });
}

}  // namespace collectives::drop_in
