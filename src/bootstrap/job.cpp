// Implementation of Job, which holds the names of the job to which a rank belongs. The names come from environment
// variables of the launcher and the scheduler. When ranks connect, they compare hashes of the names, because a name may
// be long and may contain any bytes.
#include "bootstrap/job.hpp"

#include <fmt/format.h>

namespace collectives {
namespace {

/// Combines names in a hash (FNV-1a with 64 bits) and in a text.
class Names {
 public:
  explicit Names(std::string& text) : text_(text) {}

  void add(std::string_view name, std::string_view value) {
    hash_bytes(name);
    hash_bytes("=");
    hash_bytes(value);
    hash_bytes(std::string_view("\0", 1));
    any_ = true;
    text_ += fmt::format("{}{}{}{}", text_.empty() ? "" : ", ", name, name.empty() ? "" : "=", escaped_text(value));
  }
  /// Returns the hash of all names, or 0 if there are none.
  std::uint64_t hash() const { return any_ ? hash_ : 0; }

 private:
  void hash_bytes(std::string_view bytes) {
    for (const char c : bytes) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  std::string& text_;
  std::uint64_t hash_ = 14695981039346656037u;
  bool any_ = false;
};

const std::string* value_of(const Variables& variables, std::string_view name) {
  const auto found = variables.find(name);
  return found == variables.end() || found->second.empty() ? nullptr : &found->second;
}

bool is_on_one_host(const Variables& variables) {
  const std::string* const local = value_of(variables, "LOCAL_WORLD_SIZE");
  const std::string* const all = value_of(variables, "WORLD_SIZE");
  return local == nullptr || all == nullptr || *local == *all;
}

}  // namespace

Job job_of(const Variables& variables, std::string_view launcher) {
  Job job;
  Names launch(job.text);
  if (const std::string* const name = value_of(variables, "COLLECTIVES_JOB")) {
    launch.add("COLLECTIVES_JOB", *name);
    job.named = true;
  } else {
    if (const std::string* const run = value_of(variables, "TORCHELASTIC_RUN_ID")) {
      launch.add("TORCHELASTIC_RUN_ID", *run);
      const std::string* const attempt = value_of(variables, "TORCHELASTIC_RESTART_COUNT");
      if (attempt != nullptr && is_on_one_host(variables)) launch.add("TORCHELASTIC_RESTART_COUNT", *attempt);
    }
    if (!launcher.empty()) launch.add("", launcher);
    if (const std::string* const id = value_of(variables, "SLURM_JOB_ID")) {
      Names scheduler(job.text);
      scheduler.add("SLURM_JOB_ID", *id);
      const std::string* const attempt = value_of(variables, "SLURM_RESTART_COUNT");
      scheduler.add("SLURM_RESTART_COUNT", attempt == nullptr ? "0" : *attempt);
      job.scheduler = scheduler.hash();
    }
  }
  job.launch = launch.hash();
  if (job.text.size() > kMaxJobText) job.text.resize(kMaxJobText);
  return job;
}

bool is_same_job(const Job& a, const Job& b) {
  if (a.named || b.named) return a.named && b.named && a.launch == b.launch;
  const bool same_scheduler = a.scheduler == 0 || b.scheduler == 0 || a.scheduler == b.scheduler;
  return a.launch == b.launch && same_scheduler && a.user == b.user;
}

std::string escaped_text(std::string_view text, std::size_t most) {
  std::string escaped;
  for (const char c : text) {
    if (escaped.size() >= most) return escaped + "...";
    if (c >= ' ' && c < 127) {
      escaped += c;
    } else {
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return escaped;
}

std::string job_text(const Job& job) {
  return job.text.empty() ? fmt::format("a job without a name of user {}", job.user)
                          : fmt::format("job \"{}\" of user {}", job.text, job.user);
}

}  // namespace collectives
