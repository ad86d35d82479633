// Implementation of the collapse, in which the kernel joins small pages of 4 KiB into huge pages of 2 MiB. This file
// requests the collapse. Before that, it checks four limits, so that the collapse does not delay a rank on a busy
// machine. The head of huge_page_collapse.hpp lists these limits.
#include "shared_memory/huge_page_collapse.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace collectives {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which the headers of Debian 12 lack

/// Maximum number of runnable threads per core at which a collapse may begin. Example: 8 ranks on 2 cores are 4 threads
/// per core. The limit is twice that number, because other programs may run, too.
constexpr long kThreadsPerCore = 8;

/// Returns whether at most kThreadsPerCore threads per core are runnable. Returns true if the number of cores is
/// unknown.
bool cores_suffice() {
  std::string averages, running;  // example of the file: "0.20 0.18 0.12 1/80 11206", in which 1 of 80 threads runs
  std::ifstream("/proc/loadavg") >> averages >> averages >> averages >> running;
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  return cores < 1 || std::strtol(running.c_str(), nullptr, 10) <= kThreadsPerCore * cores;
}

}  // namespace

HugePageCollapse::System HugePageCollapse::linux_system() {
  return {.now = [] { return Clock::now(); },
          .cores_suffice = [] { return cores_suffice(); },
          .collapse = [](std::byte* begin, std::size_t bytes) { ::madvise(begin, bytes, kCollapse); }};
}

void HugePageCollapse::run(std::byte* begin, std::byte* end, Clock::time_point deadline) {
  while (begin < end && !was_slow_ && system_.now() < deadline && system_.cores_suffice()) {
    const std::size_t bytes = std::min(static_cast<std::size_t>(end - begin), kBytesPerCall);
    const auto begun = system_.now();
    system_.collapse(begin, bytes);
    if (system_.now() - begun > kSlow) was_slow_ = true;
    begin += bytes;
  }
}

}  // namespace collectives
