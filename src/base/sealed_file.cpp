// Implementation of sealed memfds. A memfd is a file in memory without a name in the file system. After it is sealed,
// no process can change its size. If the system refuses memory, the error text names the system call that failed and,
// if known, the limit.
#include "base/sealed_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error_text.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

constexpr unsigned kNoExecSeal = 0x8u;  // MFD_NOEXEC_SEAL of Linux 6.3, which the setting vm.memfd_noexec may require

}  // namespace

void refuse_memory(std::size_t bytes, std::string_view what, std::string_view why) {
  throw Error(Errc::system, fmt::format("memory: no {} for {}: {}", bytes_text(bytes), what, why));
}

void refuse_mapping(std::size_t bytes, std::string_view what) {
  const int error = errno;
  std::string limit = limit_text(RLIMIT_AS, "RLIMIT_AS", 'v');
  if (limit.empty()) limit = "see vm.max_map_count and vm.overcommit_memory";
  refuse_memory(bytes, what, fmt::format("mmap: {}; {}", error_text(error), limit));
}

SealedFile make_sealed_file(std::string_view what, const std::string& name, std::size_t bytes, unsigned flags) {
  rlimit limit{};
  // above this limit, ftruncate() would end the process by SIGXFSZ
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
    refuse_memory(bytes, what, limit_text(RLIMIT_FSIZE, "RLIMIT_FSIZE", 'f'));
  const char* asked = "memfd_create";
  flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
  Descriptor file(::memfd_create(name.c_str(), flags | kNoExecSeal));
  if (!file && errno == EINVAL) file = Descriptor(::memfd_create(name.c_str(), flags));
  if (file) {
    asked = "ftruncate";
    if (::ftruncate(file.fd(), static_cast<off_t>(bytes)) == 0) {
      asked = "sealing";
      if (::fcntl(file.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) return {std::move(file), {}};
    }
  }
  const int error = errno;
  if (is_out_of_descriptors(error)) refuse_memory(bytes, what, error_text(error));
  const std::string refused = fmt::format("{}: {}", asked, error_text(error));
  if (error == ENOMEM || error == ENOSPC || error == EFBIG || error == EINTR) refuse_memory(bytes, what, refused);
  return {Descriptor(), refused};
}

OpenedSealedFile open_sealed_file(int pid, int number, int flags) noexcept {
  char path[48];
  const auto path_of = [&](const char* process, int descriptor) {
    *fmt::format_to_n(path, sizeof path - 1, "/proc/{}/fd/{}", process, descriptor).out = '\0';
    return path;
  };
  char process[16];
  *fmt::format_to_n(process, sizeof process - 1, "{}", pid).out = '\0';
  // O_PATH finds the file without opening it. Opening could block (FIFO) or have an effect (device).
  const Descriptor found(::open(path_of(process, number), O_PATH | O_CLOEXEC));
  if (!found) return {};
  char target[16] = {};
  struct stat status {};
  const bool memfd = ::readlink(path_of("self", found.fd()), target, sizeof target) > 0 &&
                     std::string_view(target, sizeof target).starts_with("/memfd:") &&
                     ::fstat(found.fd(), &status) == 0 && S_ISREG(status.st_mode);
  if (!memfd) {
    errno = EINVAL;
    return {};
  }
  Descriptor file(::open(path_of("self", found.fd()), flags | O_CLOEXEC));
  if (!file) return {};
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  const int seals = ::fcntl(file.fd(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(file.fd(), &status) != 0) {
    errno = EINVAL;
    return {};
  }
  return {std::move(file), static_cast<std::size_t>(status.st_size)};
}

}  // namespace collectives
