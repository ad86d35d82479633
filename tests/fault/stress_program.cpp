// One rank of a program that makes random collectives between ranks of one host. abuse_test and random_operations start
// it. All collectives use one protocol, a way to exchange data through shared memory. Buffers end at inaccessible
// pages, inputs are read-only, and a rank may be killed or stopped during a call. The program reports its result in one
// line on stdout.
//
//   stress_program KEY=VALUE...
//     protocol=lines|one_shot|staged|single_copy|zero_copy|mixed
//     operations=N seed=N         N collectives, checked element by element; prints "ok"
//     hosts=H,H,...               rank r claims to be on the r-th host of the list, so other protocols may be used
//     wait=mixed                  a third of the collectives is asynchronous and waited for, a third is tested in a
//     loop victim=RANK how=kill|exit|stop after_us=N
//                                 no checks; RANK ends or stops N microseconds after the start. The other ranks report
//                                 their errors, fill their buffers, wake the stopped rank, and check whether any rank
//                                 has written into the buffers since
//     how=kill_inside|stop_inside RANK ends or stops while it works in the buffers of other ranks; the work of the next
//                                 rank is slow then
//     mismatches=1                rank `victim` makes another call than the other ranks, for many pairs of calls
//     refuse=WHAT                 the system refuses to rank `victim`: a call (process_vm_readv, process_vm_writev,
//                                 memfd_create, memfd_without_seal), a thread, large files, or descriptors (but for
//                                 `spare`); user_namespace gives it a user namespace of its own
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/collectives.hpp"
#include "core/collective.hpp"
#include "core/tuning_parameters.hpp"
#include "support/element_values.hpp"
#include "support/system.hpp"

namespace collectives::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBufferBytes = 96 * kPage;  // bytes of one buffer

std::map<std::string, std::string> arguments;
std::string text(const std::string& key, const char* otherwise) {
  const auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : found->second;
}
long number(const std::string& key, long otherwise) {
  return std::strtol(text(key, std::to_string(otherwise).c_str()).c_str(), nullptr, 10);
}

TuningParameters tuning_of(const std::string& protocol) {
  TuningParameters tuning;
  if (protocol == "mixed") {
    tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = 16 << 10;
    return tuning;
  }
  tuning.inline_bytes = protocol == "lines" ? 64 << 10 : 0;
  tuning.one_shot_bytes = tuning.one_shot_bytes_of_many = tuning.one_shot_bytes_oversubscribed =
      protocol == "one_shot" ? Tuning::kNever : 0;
  tuning.single_copy_bytes = tuning.single_copy_reduce_bytes = protocol == "single_copy" ? 0 : Tuning::kNever;
  tuning.zero_copy_bytes = tuning.zero_copy_bytes_oversubscribed = protocol == "zero_copy" ? 0 : Tuning::kNever;
  if (protocol == "two_levels") tuning.domain_us = 1e6;  // two levels are chosen if possible
  tuning.chunk_bytes = 16 << 10;
  return tuning;
}

/// Ordinary memory between two inaccessible pages, so that an access outside it ends the process.
class Guarded {
 public:
  Guarded() : all_(::mmap(nullptr, kBufferBytes + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    protect(true);
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { ::munmap(all_, kBufferBytes + 2 * kPage); }
  std::byte* data() const { return static_cast<std::byte*>(all_) + kPage; }
  void protect(bool writable) const { ::mprotect(data(), kBufferBytes, writable ? PROT_READ | PROT_WRITE : PROT_READ); }

 private:
  void* all_;
};

/// The buffers of a rank: an input and an output, in ordinary and in allocated memory.
struct Buffers {
  explicit Buffers(Communicator& comm)
      : shared{comm.allocate<std::byte>(kBufferBytes), comm.allocate<std::byte>(kBufferBytes)} {}
  std::byte* base(bool allocated, int which) { return allocated ? shared[which].data() : ordinary[which].data(); }
  template <class Visit>
  void for_each(Visit&& visit) {
    for (const bool allocated : {false, true})
      for (const int which : {0, 1}) visit(base(allocated, which));
  }
  Guarded ordinary[2];
  SharedArray<std::byte> shared[2];
};

/// Form of the wait for the end of a call.
enum class Waiting { blocking, wait, test };

/// One call. Only the places of its buffers may differ between ranks.
struct Operation {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::i32;
  ReduceOp op = ReduceOp::sum;
  /// number of elements of the whole vector; a multiple of the number of ranks if all parts are equal
  std::size_t count = 0;
  std::vector<std::size_t> counts;
  /// blocks[a][b]: number of elements that rank a sends to rank b in a gather_v, scatter_v or all_to_all_v; empty: the
  /// call is none of these
  std::vector<std::vector<std::size_t>> blocks;
  Rank root = 0;
  bool in_place = false;
  std::uint64_t number = 0;
  Waiting waiting = Waiting::blocking;
};

Operation draw(std::mt19937_64& random, int ranks, std::uint64_t number) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  constexpr Collective kCollectives[] = {Collective::all_reduce,     Collective::reduce_scatter, Collective::all_gather,
                                         Collective::broadcast,      Collective::reduce,         Collective::barrier,
                                         Collective::gather,         Collective::scatter,        Collective::scan,
                                         Collective::exclusive_scan, Collective::all_to_all};
  constexpr std::size_t kMost[] = {2, 30, 300, 3000, 30'000};
  Operation one;
  one.number = number;
  one.collective = kCollectives[below(std::size(kCollectives))];
  one.type = kDataTypes[below(std::size(kDataTypes))];
  const std::vector<ReduceOp> ops = ops_of_type(one.type);
  one.op = ops[below(ops.size())];
  one.count = below(kMost[below(std::size(kMost))]);
  if (size_of(one.type) > 8) one.count /= 2;
  one.root = static_cast<Rank>(below(static_cast<std::size_t>(ranks)));
  one.in_place = below(2) == 0;
  if (one.collective == Collective::all_to_all) one.count -= one.count % static_cast<std::size_t>(ranks);
  if (has_part_as_input(one.collective) || has_part_as_output(one.collective)) {
    one.count -= one.count % static_cast<std::size_t>(ranks);
    if (!has_root(one.collective) && below(3) == 0) {  // parts of unequal length
      one.counts.assign(static_cast<std::size_t>(ranks), 0);
      for (std::size_t left = one.count; left > 0;) {
        const std::size_t some = 1 + below(left);
        one.counts[below(one.counts.size())] += some;
        left -= some;
      }
    }
  }
  return one;
}

/// Makes a call with counts that only their ranks know of a gather, scatter or all-to-all. A third of the counts is 0.
void draw_blocks(Operation& one, std::mt19937_64& random, int ranks) {
  const auto size = static_cast<std::size_t>(ranks), root = static_cast<std::size_t>(one.root);
  const std::size_t most = one.count / size;
  one.blocks.assign(size, std::vector<std::size_t>(size));
  one.count = 0;
  for (std::size_t a = 0; a < size; ++a)
    for (std::size_t b = 0; b < size; ++b) {
      if ((one.collective == Collective::gather && b != root) || (one.collective == Collective::scatter && a != root))
        continue;
      std::size_t& count = one.blocks[a][b];
      // In place, both layouts of a rank are equal.
      if (one.in_place && one.collective == Collective::all_to_all && b < a)
        count = one.blocks[b][a];
      else if (random() % 3 != 0)
        count = static_cast<std::size_t>(random() % (most + 1));
      one.count += count;
    }
}

std::string hex(std::span<const std::byte> bytes) {
  std::string digits;
  for (const std::byte byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", std::to_integer<unsigned>(byte));
    digits += two;
  }
  return digits;
}

/// Returns the number of which an element is made, from 0 to 15. The sum over seven ranks fits into a byte.
int value(const Operation& one, Rank rank, std::size_t index) {
  return static_cast<int>((one.number * 7 + static_cast<std::size_t>(rank) * 5 + index * 3 + index / 251) % 16);
}

[[noreturn]] void wrong(const Operation& one, const std::string& what) {
  throw std::runtime_error("operation " + std::to_string(one.number) + " (" + std::string(to_string(one.collective)) +
                           " of " + std::to_string(one.count) + " x " + std::string(to_string(one.type)) + " by " +
                           std::string(to_string(one.op.kind())) + "): " + what);
}

/// Places of the buffers of one call, which may differ between ranks.
struct Places {
  std::byte *input = nullptr, *output = nullptr;
  std::size_t input_count = 0, output_count = 0;
};

struct Share {
  std::size_t first, count;
};

Share share_of(const Operation& one, Rank rank, int ranks) {
  if (one.counts.empty()) {
    const std::size_t each = one.count / static_cast<std::size_t>(ranks);
    return {each * static_cast<std::size_t>(rank), each};
  }
  const auto begin = one.counts.begin();
  return {std::accumulate(begin, begin + rank, std::size_t{0}), one.counts[static_cast<std::size_t>(rank)]};
}

Work begin(Communicator& comm, const Operation& one, const Places& at, const Options& options) {
  const ConstBuffer input(at.input, at.input_count, one.type);
  const Buffer output(at.output, at.output_count, one.type);
  switch (one.collective) {
    case Collective::all_reduce: return comm.all_reduce_async(input, output, one.op, options);
    case Collective::reduce_scatter:
      return one.counts.empty() ? comm.reduce_scatter_async(input, output, one.op, options)
                                : comm.reduce_scatter_v_async(input, output, one.counts, one.op, options);
    case Collective::all_gather:
      return one.counts.empty() ? comm.all_gather_async(input, output, options)
                                : comm.all_gather_v_async(input, output, one.counts, options);
    case Collective::broadcast: return comm.broadcast_async(input, output, one.root, options);
    case Collective::reduce: return comm.reduce_async(input, output, one.op, one.root, options);
    case Collective::barrier: return comm.barrier_async(options);
    case Collective::gather: return comm.gather_async(input, output, one.root, options);
    case Collective::scatter: return comm.scatter_async(input, output, one.root, options);
    case Collective::scan: return comm.scan_async(input, output, one.op, options);
    case Collective::exclusive_scan: return comm.exclusive_scan_async(input, output, one.op, options);
    case Collective::all_to_all: return comm.all_to_all_async(input, output, options);
  }
  return {};
}

void finish(Work work, Waiting waiting) {
  if (waiting == Waiting::wait) return work.wait();
  while (!work.test()) ::sched_yield();
}

void call(Communicator& comm, const Operation& one, const Places& at, const Options& options) {
  if (one.waiting != Waiting::blocking) return finish(begin(comm, one, at, options), one.waiting);
  const ConstBuffer input(at.input, at.input_count, one.type);
  const Buffer output(at.output, at.output_count, one.type);
  switch (one.collective) {
    case Collective::all_reduce: return comm.all_reduce(input, output, one.op, options);
    case Collective::reduce_scatter:
      return one.counts.empty() ? comm.reduce_scatter(input, output, one.op, options)
                                : comm.reduce_scatter_v(input, output, one.counts, one.op, options);
    case Collective::all_gather:
      return one.counts.empty() ? comm.all_gather(input, output, options)
                                : comm.all_gather_v(input, output, one.counts, options);
    case Collective::broadcast: return comm.broadcast(input, output, one.root, options);
    case Collective::reduce: return comm.reduce(input, output, one.op, one.root, options);
    case Collective::barrier: return comm.barrier(options);
    case Collective::gather: return comm.gather(input, output, one.root, options);
    case Collective::scatter: return comm.scatter(input, output, one.root, options);
    case Collective::scan: return comm.scan(input, output, one.op, options);
    case Collective::exclusive_scan: return comm.exclusive_scan(input, output, one.op, options);
    case Collective::all_to_all: return comm.all_to_all(input, output, options);
  }
}

/// `mine`: this rank's own places.
Places place(Communicator& comm, Buffers& buffers, const Operation& one, std::mt19937_64& mine, int allocated) {
  const std::size_t element = size_of(one.type);
  const Share part = share_of(one, comm.rank(), comm.size());
  const bool part_in = has_part_as_input(one.collective), part_out = has_part_as_output(one.collective);
  Places at;
  at.input_count = part_in ? part.count : one.count;
  at.output_count = part_out ? part.count : one.count;
  const auto pick = [&](int which, std::size_t count) {
    const bool from_shared = allocated < 0 ? mine() % 2 == 0 : allocated == 1;
    const std::size_t shift = mine() % 4 == 0 ? mine() % 64 : 0, bytes = count * element;
    // Places a buffer at the first byte of a page, at the last one, or a few bytes away.
    return buffers.base(from_shared, which) + (mine() % 2 == 0 ? shift : kBufferBytes - bytes - shift);
  };
  at.output = pick(1, part_out && one.in_place ? one.count : at.output_count);
  at.input = pick(0, at.input_count);
  if (one.in_place) {
    at.input = part_in ? at.output + part.first * element : at.output;
    if (part_out) at.output += part.first * element;
  }
  return at;
}

/// Makes a call with known inputs, and checks the outputs and the bytes around them.
void check(Communicator& comm, Buffers& buffers, const Operation& one, std::mt19937_64& mine, const Options& options,
           int allocated) {
  constexpr std::byte kGuardByte{0xa5};
  const std::size_t element = size_of(one.type);
  const Places at = place(comm, buffers, one, mine, allocated);
  const std::size_t around = std::max(one.count * element, std::size_t{256}) + 128;
  const auto window = [&](const std::byte* data, bool end) {  // around a buffer, on accessible pages
    std::byte* base = nullptr;
    buffers.for_each([&](std::byte* begin) {
      if (data >= begin && data <= begin + kBufferBytes) base = base == nullptr || begin > base ? begin : base;
    });
    const auto offset = static_cast<std::size_t>(data - base);
    return base + (end ? std::min(kBufferBytes, offset + around) : offset - std::min(offset, around));
  };
  std::byte *const begin = window(at.output, false), *const end = window(at.output, true);
  std::memset(begin, static_cast<int>(kGuardByte), static_cast<std::size_t>(end - begin));
  const bool from_root = one.collective == Collective::broadcast || one.collective == Collective::scatter;
  const bool has_input = !from_root || comm.rank() == one.root;
  const std::size_t first_in = has_part_as_input(one.collective) ? share_of(one, comm.rank(), comm.size()).first : 0;
  if (has_input)
    for (std::size_t i = 0; i < at.input_count; ++i)
      put_element(at.input + i * element, one.type, one.op.kind(), value(one, comm.rank(), first_in + i));
  std::byte* const read_only = buffers.ordinary[0].data();
  const bool protect =
      !one.in_place && at.input >= read_only && at.input < read_only + kBufferBytes && one.number % 4 == 0;
  if (protect) buffers.ordinary[0].protect(false);
  call(comm, one, at, options);
  if (protect) buffers.ordinary[0].protect(true);
  if (one.collective == Collective::barrier) return;

  const bool to_root = one.collective == Collective::reduce || one.collective == Collective::gather;
  const bool nothing_before = one.collective == Collective::exclusive_scan && comm.rank() == 0;
  const bool wanted = !nothing_before && (!to_root || comm.rank() == one.root);
  const std::size_t first_out = has_part_as_output(one.collective) ? share_of(one, comm.rank(), comm.size()).first : 0;
  const int terms = finish_ranks_of(one.collective, comm.rank(), comm.size());
  Rank owner = 0;
  std::vector<int> values(static_cast<std::size_t>(terms));
  for (std::size_t i = 0; wanted && i < at.output_count; ++i) {
    std::byte expected[16];
    const auto put_value_of = [&](Rank rank, std::size_t element_of_rank) {
      put_element(expected, one.type, one.op.kind(), value(one, rank, element_of_rank));
    };
    if (from_root) {
      put_value_of(one.root, first_out + i);
    } else if (has_part_as_input(one.collective)) {
      for (Share part = share_of(one, owner, comm.size()); i >= part.first + part.count;
           part = share_of(one, owner, comm.size()))
        ++owner;
      put_value_of(owner, i);
    } else if (one.collective == Collective::all_to_all) {
      const Share part = share_of(one, comm.rank(), comm.size());
      put_value_of(static_cast<Rank>(i / part.count), part.first + i % part.count);
    } else {
      for (std::size_t rank = 0; rank < values.size(); ++rank)
        values[rank] = value(one, static_cast<Rank>(rank), first_out + i);
      put_result(expected, one.type, one.op.kind(), values);
    }
    if (const std::byte* const seen = at.output + i * element; std::memcmp(seen, expected, element) != 0)
      wrong(one, "element " + std::to_string(i) + " is " + hex({seen, element}) + ", not " + hex({expected, element}));
  }
  if (one.in_place) return;
  for (const std::byte* byte = begin; byte < end; ++byte)
    if ((byte < at.output || byte >= at.output + at.output_count * element) && *byte != kGuardByte)
      wrong(one, "byte " + std::to_string(byte - at.output) + " of the output was written");
}

/// Parts of one buffer of a call with blocks.
struct Layout {
  /// Draws a layout. If `is_divided` is true, it may have displacements: any order of the parts, and gaps.
  Layout(std::vector<std::size_t> counts_of_ranks, bool is_divided, std::mt19937_64& mine)
      : counts(std::move(counts_of_ranks)), length(std::accumulate(counts.begin(), counts.end(), std::size_t{0})) {
    if (!is_divided || mine() % 2 == 0) return;
    constexpr std::size_t kMostGap = 5;  // elements
    std::vector<std::size_t> order(counts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, mine);
    displacements.resize(counts.size());
    length = 0;
    for (const std::size_t rank : order) {
      displacements[rank] = length + static_cast<std::size_t>(mine() % (kMostGap + 1));
      length = displacements[rank] + counts[rank];
    }
    length += static_cast<std::size_t>(mine() % (kMostGap + 1));
  }
  /// Returns the first element of a part.
  std::size_t first_of(std::size_t rank) const {
    if (!displacements.empty()) return displacements[rank];
    return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank), std::size_t{0});
  }
  PartLayout parts() const { return {counts, displacements}; }

  std::vector<std::size_t> counts, displacements;
  std::size_t length;  // elements
};

void call_blocks(Communicator& comm, const Operation& one, const Places& at, const Layout& in, const Layout& out,
                 const Options& options) {
  const ConstBuffer input(at.input, in.length, one.type);
  const Buffer output(at.output, out.length, one.type);
  const bool at_root = comm.rank() == one.root;
  const PartLayout sent = at_root ? in.parts() : PartLayout(), received = at_root ? out.parts() : PartLayout();
  const bool blocks = one.waiting == Waiting::blocking;
  if (one.collective == Collective::gather)
    blocks ? comm.gather_v(input, output, received, one.root, options)
           : finish(comm.gather_v_async(input, output, received, one.root, options), one.waiting);
  else if (one.collective == Collective::scatter)
    blocks ? comm.scatter_v(input, output, sent, one.root, options)
           : finish(comm.scatter_v_async(input, output, sent, one.root, options), one.waiting);
  else
    blocks ? comm.all_to_all_v(input, in.parts(), output, out.parts(), options)
           : finish(comm.all_to_all_v_async(input, in.parts(), output, out.parts(), options), one.waiting);
}

/// Makes a call with blocks, and checks the whole memory in which its output lies.
void check_blocks(Communicator& comm, Buffers& buffers, const Operation& one, std::mt19937_64& mine,
                  const Options& options, int allocated) {
  constexpr std::byte kGuardByte{0xa5};
  constexpr std::size_t kBlockStep = 100'003;  // distance of the values of two blocks; a block has fewer elements
  const std::size_t element = size_of(one.type);
  const auto self = static_cast<std::size_t>(comm.rank());
  const bool all = one.collective == Collective::all_to_all, gathers = one.collective == Collective::gather;
  const bool at_root = comm.rank() == one.root, in_place = one.in_place && (all || at_root);
  std::vector<std::size_t> received;
  for (const auto& sent : one.blocks) received.push_back(sent[self]);
  const Layout in(one.blocks[self], all || (!gathers && at_root), mine);
  const Layout out = all && in_place ? in : Layout(received, all || (gathers && at_root), mine);

  const auto base_of = [&](int which) { return buffers.base(allocated < 0 ? mine() % 2 == 0 : allocated == 1, which); };
  const auto pick = [&](std::byte* base, std::size_t count) {  // the first or last place in the memory, or near it
    const std::size_t shift = mine() % 4 == 0 ? mine() % 64 : 0;
    return base + (mine() % 2 == 0 ? shift : kBufferBytes - count * element - shift);
  };
  std::byte* const memory = base_of(1);
  Places at;
  at.output = pick(memory, in_place ? std::max(in.length, out.length) : out.length);
  at.input = pick(base_of(0), in.length);
  if (in_place) {
    at.input = at.output + (gathers ? out.first_of(self) * element : 0);
    if (!all && !gathers) at.output += in.first_of(self) * element;
  }
  const auto put = [&](std::byte* to, std::size_t from, std::size_t receiver, std::size_t index) {
    std::byte bytes[16]{};
    put_element(bytes, one.type, one.op.kind(), value(one, static_cast<Rank>(from), receiver * kBlockStep + index));
    std::memcpy(to, bytes, element);
  };
  std::memset(memory, static_cast<int>(kGuardByte), kBufferBytes);
  for (std::size_t to = 0; to < in.counts.size(); ++to)
    for (std::size_t i = 0; i < in.counts[to]; ++i) put(at.input + (in.first_of(to) + i) * element, self, to, i);
  std::vector<std::byte> expected(memory, memory + kBufferBytes);
  for (std::size_t from = 0; from < out.counts.size(); ++from)
    for (std::size_t i = 0; i < out.counts[from]; ++i)
      put(expected.data() + (at.output - memory) + (out.first_of(from) + i) * element, from, self, i);
  call_blocks(comm, one, at, in, out, options);
  const auto [seen, right] = std::mismatch(memory, memory + kBufferBytes, expected.begin());
  if (seen != memory + kBufferBytes)
    wrong(one, "byte " + std::to_string(seen - at.output) + " of the output is " + hex({seen, 1}) + ", not " +
                   hex({&*right, 1}));
}

CommunicatorOptions options_of(const std::string& protocol) {
  CommunicatorOptions options;
  options.tuning = tuning_of(protocol);
  options.timeout = std::chrono::milliseconds(number("timeout_ms", 60'000));
  return options;
}

/// Kind of memory: ordinary, allocated, or each rank's own choice (-1).
int memory_for(const std::string& protocol) {
  return protocol == "mixed" ? -1 : protocol == "zero_copy" ? 1 : protocol == "single_copy" ? 0 : -1;
}

/// Returns a backend that has a form of the call.
std::string backend_for(const std::string& protocol, const Operation& one, std::mt19937_64& common) {
  constexpr std::string_view kBackends[] = {"auto", "hierarchical", "ring", "reduce_to_one"};
  if (protocol != "mixed") return "hierarchical";
  const std::string_view backend = kBackends[common() % std::size(kBackends)];
  const bool rooted = one.collective == Collective::gather || one.collective == Collective::scatter;
  const bool pairwise = one.collective == Collective::all_to_all || !one.blocks.empty();
  const bool has_form = backend == "ring"            ? !rooted && !pairwise
                        : backend == "reduce_to_one" ? !is_scan(one.collective) && !pairwise
                                                     : true;
  return std::string(has_form ? backend : "auto");
}

void stress(Communicator& comm, const std::string& protocol) {
  Buffers buffers(comm);
  std::mt19937_64 common(static_cast<std::uint64_t>(number("seed", 1)));
  std::mt19937_64 mine(common() + static_cast<std::uint64_t>(comm.rank()));
  const bool mixed_waits = text("wait", "") == "mixed";
  for (long i = 0, end = number("operations", 100); i < end; ++i) {
    Operation one = draw(common, comm.size(), static_cast<std::uint64_t>(i));
    if (has_local_counts(one.collective) && common() % 2 == 0) draw_blocks(one, common, comm.size());
    const std::string backend = backend_for(protocol, one, common);
    if (mixed_waits) one.waiting = static_cast<Waiting>(mine() % 3);
    (one.blocks.empty() ? check : check_blocks)(comm, buffers, one, mine, {.backend = backend}, memory_for(protocol));
  }
}

/// Signal by which a rank reports to the others that its call has failed. The system queues it.
const int kReport = SIGRTMIN;
std::atomic<int> reports{0};  // Number of other ranks whose call has failed.

/// Blocks until the calls of `ranks` other ranks have failed, at most 20 s.
void wait_for_reports(int ranks) {
  for (const auto deadline = Clock::now() + 20s; reports < ranks && Clock::now() < deadline;)
    std::this_thread::sleep_for(1ms);
}

/// Makes calls without a pause until one fails.
void be_abused(Communicator& comm, const std::string& protocol) {
  const Rank rank = comm.rank(), victim = static_cast<Rank>(number("victim", 0));
  const std::string how = text("how", "kill");
  Buffers buffers(comm);
  std::vector<int> process{static_cast<int>(::getpid())}, processes(static_cast<std::size_t>(comm.size()));
  std::signal(kReport, [](int) { ++reports; });
  comm.all_gather(process, processes);
  comm.barrier();
  const bool inside = how.ends_with("_inside");
  bool first = true;
  const UserOp slow{"slow", [&](const void* value, void* sum, std::size_t count, DataType) {
                      if (std::exchange(first, false)) {
                        if (rank == (victim + 1) % comm.size()) std::this_thread::sleep_for(200ms);
                        if (rank == victim) {
                          std::this_thread::sleep_for(50ms);  // until all ranks make calls
                          ::raise(how == "stop_inside" ? SIGSTOP : SIGKILL);
                        }
                      }
                      for (std::size_t i = 0; i < count; ++i)
                        static_cast<std::uint32_t*>(sum)[i] += static_cast<const std::uint32_t*>(value)[i];
                    }};
  std::thread end;
  if (rank == victim && !inside)
    end = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(number("after_us", 1000)));
      if (how == "exit") ::_exit(7);
      ::kill(::getpid(), how == "stop" ? SIGSTOP : SIGKILL);
    });
  auto last = Clock::now();
  try {
    std::mt19937_64 common(static_cast<std::uint64_t>(number("seed", 1))), mine(common());
    for (std::uint64_t i = 0;; ++i) {
      Operation one = draw(common, comm.size(), i);
      one.count = one.counts.empty() ? one.count / 840 * 840 + 8400 : one.count;  // mostly long vectors
      const Places at = place(comm, buffers, one, mine, memory_for(protocol));
      last = Clock::now();
      if (inside)
        comm.all_reduce(Buffer(buffers.base(true, 0), kBufferBytes / 4, DataType::i32), ReduceOp::user(slow));
      else
        call(comm, one, at, {.backend = "hierarchical"});
    }
  } catch (const Error& error) {
    const std::chrono::duration<double> waited = Clock::now() - last;
    // The buffers belong to the program again from here on.
    constexpr std::byte kMine{0x5a};
    buffers.for_each([&](std::byte* begin) { std::memset(begin, static_cast<int>(kMine), kBufferBytes); });
    std::printf("rank %d: %s of rank %d after %s s: %s\n", rank, std::string(to_string(error.code())).c_str(),
                error.peer(), waited.count() < 2 ? "at most 2" : "more than 2", error.what());
    std::fflush(stdout);
    for (Rank other = 0; other < comm.size(); ++other)
      if (other != rank && other != victim) ::kill(processes[static_cast<std::size_t>(other)], kReport);
    if (rank == victim) {
      if (end.joinable()) end.join();
      return;
    }
    wait_for_reports(comm.size() - 2);
    if (how.starts_with("stop")) {
      ::kill(processes[static_cast<std::size_t>(victim)], SIGCONT);
      wait_for_reports(comm.size() - 1);
    }
    std::this_thread::sleep_for(50ms);  // a late access would come now
    std::ptrdiff_t touched = 0;
    buffers.for_each([&](const std::byte* begin) {
      touched += std::count_if(begin, begin + kBufferBytes, [](std::byte byte) { return byte != kMine; });
    });
    if (touched != 0) std::printf("rank %d: %td bytes were written afterwards\n", rank, touched);
  }
}

/// Makes many pairs of calls. Rank `victim` makes one call of a pair, and all other ranks the other.
void disagree(Communicator& world, const std::string& protocol) {
  const Rank odd = static_cast<Rank>(number("victim", 0));
  Buffers buffers(world);
  std::vector<Operation> calls;
  for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::all_gather})
    for (const std::size_t count : {12u, 1200u, 12'000u, 36'000u}) {
      Operation& one = calls.emplace_back();
      one.collective = collective;
      one.count = count;
    }
  std::mt19937_64 random(static_cast<std::uint64_t>(number("seed", 1)));
  int agreed = 0;
  for (long i = 0, end = number("operations", 20); i < end; ++i) {
    const std::size_t a = random() % calls.size();
    const std::size_t b = (a + 1 + random() % (calls.size() - 1)) % calls.size();
    const int memory = static_cast<int>(random() % 3) - 1;
    std::optional<Communicator> comm = world.split(0, 0, options_of(protocol));
    const auto began = Clock::now();
    try {
      call(*comm, calls[comm->rank() == odd ? a : b],
           place(*comm, buffers, calls[comm->rank() == odd ? a : b], random, memory), {.backend = "hierarchical"});
      for (;;) comm->barrier();
    } catch (const Error& error) {
      const std::chrono::duration<double> waited = Clock::now() - began;
      if (error.code() == Errc::mismatch && error.peer() != kNoRank && waited.count() < 1.5)
        ++agreed;
      else
        std::printf("rank %d: after %.1f s: %s\n", comm->rank(), waited.count(), error.what());
    }
    // place() has drawn another place on each rank.
    random.seed(static_cast<std::uint64_t>(number("seed", 1) + i + 1));
  }
  std::printf("rank %d: %d mismatches\n", world.rank(), agreed);
}

/// Makes this rank claim to be on its host of the argument `hosts`.
void claim_host(Rank rank) {
  std::string hosts = text("hosts", "");
  for (Rank before = 0; before < rank; ++before) hosts.erase(0, hosts.find(',') + 1);
  if (!hosts.empty()) ::setenv("COLLECTIVES_HOST_ID", hosts.substr(0, hosts.find(',')).c_str(), 1);
}

/// Runs first on the rank to which the system shall refuse a resource.
void refuse(const std::string& what) {
  if (what == "process_vm_readv") refuse_calls({{SYS_process_vm_readv, EPERM}});
  if (what == "process_vm_writev") refuse_calls({{SYS_process_vm_writev, EPERM}});
  if (what == "memfd_create") refuse_calls({{SYS_memfd_create, EPERM}});
  if (what == "memfd_without_seal")  // as vm.memfd_noexec=2 does
    refuse_calls({{SYS_memfd_create, EACCES, 1, MFD_CLOEXEC | MFD_ALLOW_SEALING}});
  if (what == "thread") refuse_calls({{SYS_clone3, ENOSYS}, {SYS_clone, EAGAIN}});
  if (what == "files") set_limit(RLIMIT_FSIZE, 4096);
  if (what == "user_namespace" && ::unshare(CLONE_NEWUSER) != 0) std::printf("no user namespace can be made here\n");
}

}  // namespace
}  // namespace collectives::testing

int main(int argc, char** argv) {
  using namespace collectives;
  using namespace collectives::testing;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    arguments[argument.substr(0, argument.find('='))] = argument.substr(argument.find('=') + 1);
  }
  const std::string protocol = text("protocol", "mixed");
  Rank rank = kNoRank;
  try {
    if (const char* const own = std::getenv("RANK")) claim_host(std::atoi(own));
    const auto bootstrap = bootstrap_from_environment();
    rank = bootstrap->rank();
    if (rank == number("victim", 0)) {
      refuse(text("refuse", ""));
      if (text("refuse", "") == "descriptors") {  // the descriptors in use now, and `spare`
        const int next = ::dup(0);
        ::close(next);
        set_limit(RLIMIT_NOFILE, static_cast<std::size_t>(next + number("spare", 0)));
      }
    }
    if (protocol == "two_levels") ::setenv("COLLECTIVES_DOMAIN", std::to_string(rank / 2).c_str(), 1);
    Communicator comm(*bootstrap, options_of(protocol));
    if (number("mismatches", 0) != 0) {
      disagree(comm, protocol);
    } else if (arguments.contains("how")) {
      be_abused(comm, protocol);
      return 3;
    } else {
      stress(comm, protocol);
      comm.barrier();
      std::printf("rank %d: ok\n", rank);
    }
    return 0;
  } catch (const Error& error) {
    std::printf("rank %d: %s: %s\n", rank, std::string(to_string(error.code())).c_str(), error.what());
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  return 3;
}
