// Implementation of the roofline, the bound with which collectives_bench compares a collective. The bound is the time
// in which the ranks of a host only load, add and store the data of the collective in shared memory. This file maps
// that memory and performs this rank's share.
#include "collectives_bench/roofline.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <string>
#include <system_error>

#include "base/descriptor.hpp"
#include "collectives_bench/buffers.hpp"

namespace collectives::bench {

namespace {

constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void refuse_memory() {
  throw std::system_error(errno, std::generic_category(), "shared memory of --fraction-of-roofline");
}

/// Layout of the input and the output of one rank in shared memory. All members are numbers of bytes and multiples of a
/// cache line.
struct Set {
  std::size_t part, input, output;  ///< output is 0 in place
};

Set set_of(const Case& c, int ranks) {
  const std::size_t part = whole_lines(c.count * size_of(c.type));
  const std::size_t whole = has_parts(c.operation) ? part * static_cast<std::size_t>(ranks) : part;
  if (c.in_place) return {part, whole, 0};
  return {part, c.operation == Operation::all_gather ? part : whole,
          c.operation == Operation::reduce_scatter ? part : whole};
}

std::size_t largest(const std::vector<Case>& cases, int ranks, std::size_t rotate) {
  std::size_t bytes = 0;
  for (const Case& c : cases) {
    if (!has_roofline(c.operation)) continue;
    const Set set = set_of(c, ranks);
    bytes = std::max(bytes, sets_for({set.input, set.output}, rotate) * (set.input + set.output));
  }
  return bytes;
}

}  // namespace

bool has_roofline(Operation operation) noexcept {
  constexpr Operation kKnown[] = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                  Operation::broadcast,  Operation::reduce,         Operation::barrier};
  return std::ranges::find(kKnown, operation) != std::end(kKnown);
}

SharedRegions::SharedRegions(Bootstrap& bootstrap, std::size_t bytes_per_rank)
    : stride_((bytes_per_rank / kPageBytes + 1) * kPageBytes),
      bytes_(stride_ * static_cast<std::size_t>(bootstrap.size())) {
  const auto exchange = [&](const std::string& text) {
    return bootstrap.all_gather(text, Deadline::in(std::chrono::minutes(10))).front();
  };
  // Rank 0 creates a file in memory. The other ranks open it by a path below /proc/PID/fd of rank 0.
  Descriptor file;
  if (bootstrap.rank() == 0) {
    file = Descriptor(memfd_create("collectives_bench", MFD_CLOEXEC));
    if (!file || ftruncate(file.fd(), static_cast<off_t>(bytes_)) != 0) refuse_memory();
  }
  const std::string path = exchange(file ? fmt::format("/proc/{}/fd/{}", getpid(), file.fd()) : "");
  if (!file) file = Descriptor(open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0);
  if (mapped == MAP_FAILED) refuse_memory();
  memory_ = static_cast<std::byte*>(mapped);
  // Each rank writes to its own region first, so that the kernel allocates the pages near its core. All ranks map every
  // region before the timing begins. The system may refuse huge pages and mapping in advance. The first calls then take
  // longer.
  (void)madvise(memory_, bytes_, MADV_HUGEPAGE);
  std::memset(of(bootstrap.rank()), 0, stride_);
  exchange("");
  (void)madvise(memory_, bytes_, MADV_POPULATE_WRITE);
}

SharedRegions::~SharedRegions() { munmap(memory_, bytes_); }

Roofline::Roofline(Communicator& comm, Bootstrap& bootstrap, const Settings& settings, const std::vector<Case>& cases)
    : comm_(comm), settings_(settings), regions_(bootstrap, largest(cases, comm.size(), settings.rotate)) {}

void Roofline::use(const Case& c) {
  const auto ranks = static_cast<std::size_t>(comm_.size()), rank = static_cast<std::size_t>(comm_.rank());
  const Set set = set_of(c, comm_.size());
  stride_ = set.input + set.output;
  sets_ = sets_for({set.input, set.output}, settings_.rotate);
  at_ = 0;

  // This rank processes its part of the vector. If the collective has no parts, each of p ranks processes about 1/p of
  // the cache lines of the vector.
  std::size_t first = rank * set.part, source_at = first, destination_at = first;
  bytes_ = set.part;
  if (has_parts(c.operation)) {
    if (set.input == set.part) source_at = 0;
    if (set.output == set.part) destination_at = 0;
  } else {
    const std::size_t lines = set.part / kLineBytes;
    first = lines * rank / ranks * kLineBytes;
    bytes_ = lines * (rank + 1) / ranks * kLineBytes - first;
    source_at = destination_at = first;
  }

  sources_.clear();
  destinations_.clear();
  for (Rank r = 0; r < comm_.size(); ++r) {
    const bool self = r == comm_.rank(), root = r == settings_.root;
    const bool copied = c.operation == Operation::all_gather ? self : c.operation == Operation::broadcast && root;
    const bool read = is_reduction(c.operation) || copied;
    const bool written = c.operation == Operation::reduce           ? root
                         : c.operation == Operation::reduce_scatter ? self
                                                                    : !(c.in_place && copied);
    if (read) sources_.push_back(regions_.of(r) + source_at);
    if (written) destinations_.push_back(regions_.of(r) + (c.in_place ? 0 : set.input) + destination_at);
  }
}

void Roofline::move(Stores stores) {
  at_ = at_ + 1 == sets_ ? 0 : at_ + 1;
  sum_lines(sources_, destinations_, at_ * stride_, bytes_, stores);
  comm_.barrier();
}

}  // namespace collectives::bench
