// Texts about system errors. If a limit of the system has caused the error, the text names that limit. Another function
// of this file raises the process's limit of open files.
#pragma once

#include <cstddef>
#include <string>

namespace collectives {

/// Returns the text of an errno. If no file descriptor is left, the text names the limit and the command that raises
/// it: "no file descriptor is left: RLIMIT_NOFILE is 68 (raise it with ulimit -n)".
std::string error_text(int error);

/// Returns whether an errno means that no file descriptor is left in this process or on this machine.
bool is_out_of_descriptors(int error) noexcept;

/// Raises the soft limit of open files if it is below `more` + 512 files, of which the program may use 512. Raises the
/// limit at most to the hard limit, and at most to 2^20.
void make_space_for_descriptors(std::size_t more) noexcept;

/// Returns "RLIMIT_AS is 64 MiB (raise it with ulimit -v)", or an empty text if there is no limit. `limit` is a
/// constant of getrlimit().
std::string limit_text(int limit, const char* name, char option, bool in_bytes = true);

}  // namespace collectives
