// Sealed memfds: files of shared memory without a name in the file system. No process can change their size.
//
// This file also makes the error texts for the case that the system refuses memory. A text names the purpose of the
// memory. If known, it also names the limit that is reached, and the setting that changes this limit.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"

namespace collectives {

struct SealedFile {
  Descriptor file;
  std::string refused;  ///< if there is no file: the system call that the system has refused, and its error
};

/// Returns a file of `bytes` zeros. `what` names the purpose of the memory in error texts, such as "a segment". Passes
/// `flags` to memfd_create, besides the flags for close-on-exec and sealing. Throws the error of refuse_memory() if a
/// limit of the system is reached. If the system refuses the file for another reason, for example because this process
/// may not create memfds, returns no file.
SealedFile make_sealed_file(std::string_view what, const std::string& name, std::size_t bytes, unsigned flags = 0);

/// Opens descriptor `number` of process `pid` if it is a sealed memfd, and returns it with its size. `flags`: O_RDONLY
/// or O_RDWR. The two numbers may come from a peer: other files are not opened, and their drivers notice nothing.
/// Returns no descriptor and sets errno if the file is missing or another one.
struct OpenedSealedFile {
  Descriptor file = Descriptor();
  std::size_t bytes = 0;
};
OpenedSealedFile open_sealed_file(int pid, int number, int flags) noexcept;

/// Throws Error{system} "memory: no 2 MiB for a segment: WHY".
[[noreturn]] void refuse_memory(std::size_t bytes, std::string_view what, std::string_view why);
/// Throws the error of refuse_memory() after a failed mmap. The text contains errno and the limit that is the likely
/// reason.
[[noreturn]] void refuse_mapping(std::size_t bytes, std::string_view what);

}  // namespace collectives
