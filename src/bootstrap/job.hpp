// Job: names of the job to which a rank belongs. When ranks connect at the rendezvous, they compare these names. If
// ranks of another job connect to the same port, their names differ, and they are refused.
//
// A job has up to three names:
//
//   launch      COLLECTIVES_JOB if it is set. Otherwise the id that the launcher gives to the job: TORCHELASTIC_RUN_ID
//               with the attempt, the step of Slurm, or the job of mpirun.
//   scheduler   SLURM_JOB_ID and SLURM_RESTART_COUNT. A rank that lacks them, for example because ssh started it, may
//               belong to any of these jobs.
//   user        The user id of the process.
//
// COLLECTIVES_JOB replaces all other names, the user included.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace collectives {

using Variables = std::map<std::string, std::string, std::less<>>;

struct Job {
  std::uint64_t launch = 0;     ///< Hash of the launch name; 0 if there is none.
  std::uint64_t scheduler = 0;  ///< Hash of the scheduler's name; 0 if there is none.
  std::uint32_t user = 0;
  bool named = false;  ///< Whether COLLECTIVES_JOB is set.
  std::string text;    ///< Names in printable ASCII, at most kMaxJobText characters.
};

constexpr std::size_t kMaxJobText = 160;

/// Returns the job that these variables name. `launcher` is the id that mpirun or Slurm gives to the job, or empty.
/// Leaves `user` at 0.
///
/// The attempt of torchrun (TORCHELASTIC_RESTART_COUNT) counts only if all ranks are on one host. Reason: each agent of
/// torchrun counts its own restarts, so the agents of two hosts may count differently in the same attempt.
Job job_of(const Variables& variables, std::string_view launcher);

/// Returns whether two ranks belong to the same job, as far as their names show.
bool is_same_job(const Job& a, const Job& b);

/// Returns `text` with every byte that is not printable ASCII as \x1b. Cuts the result after about `most` characters.
std::string escaped_text(std::string_view text, std::size_t most = 80);

/// Returns 'job "SLURM_JOB_ID=17" of user 1000'.
std::string job_text(const Job& job);

}  // namespace collectives
