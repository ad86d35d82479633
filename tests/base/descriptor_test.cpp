// Tests of file descriptors in a process that has closed its standard streams.
#include "base/descriptor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fork.hpp"

namespace collectives::testing {
namespace {

/// Returns whether `passes()` returns true in a forked child that has closed the standard streams from `first` on.
template <class Passes>
bool passes_without_streams(int first, Passes&& passes) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (int stream = first; stream <= 2; ++stream) ::close(stream);
    ::_exit(passes() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_null(int fd) {
  char byte = 0;
  return ::write(fd, "x", 1) == 1 && ::read(fd, &byte, 1) == 0;
}

TEST(Descriptor, NeverHasTheNumberOfAStandardStream) {
  for (const int first : {0, 1, 2})
    EXPECT_TRUE(passes_without_streams(first, [first] {
      const Descriptor file(::memfd_create("file", MFD_CLOEXEC));
      return file.fd() > 2 && is_null(first) && is_null(2);
    })) << first;
}

TEST(Descriptor, IsNotOfAStandardStreamIfItIsOfThisProcessOnly) {
  EXPECT_TRUE(passes_without_streams(2, [] {
    OwnDescriptor file;
    return file.open("/dev/zero", O_RDONLY) && file.fd() > 2 && is_null(2);
  }));
}

}  // namespace
}  // namespace collectives::testing
