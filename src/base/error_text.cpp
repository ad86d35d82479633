// Implementation of texts about system errors. If a limit of the system has caused an error, the text names the limit.
// Another function of this file raises the process's limit of open files.
#include "base/error_text.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/text.hpp"

namespace collectives {

std::string limit_text(int limit, const char* name, char option, bool in_bytes) {
  rlimit values{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(limit), &values) != 0 || values.rlim_cur == RLIM_INFINITY) return {};
  return fmt::format("{} is {} (raise it with ulimit -{})", name,
                     in_bytes ? bytes_text(values.rlim_cur) : fmt::format("{}", values.rlim_cur), option);
}

bool is_out_of_descriptors(int error) noexcept { return error == EMFILE || error == ENFILE; }

std::string error_text(int error) {
  if (error == EMFILE)
    return fmt::format("no file descriptor is left: {}", limit_text(RLIMIT_NOFILE, "RLIMIT_NOFILE", 'n', false));
  if (error == ENFILE) return "too many files are open on this machine: raise fs.file-max";
  return std::generic_category().message(error);
}

void make_space_for_descriptors(std::size_t more) noexcept {
  constexpr rlim_t kOfProgram = 512, kEnough = 1 << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= std::min(kEnough, kOfProgram + more)) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(kEnough, limit.rlim_max));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace collectives
