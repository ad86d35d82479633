// Bound of the comparison of libraries: a program that does only the necessary loads, additions and stores of a
// collective. Each rank accesses the vectors of all ranks in shared memory, and ranks synchronize only at the end. No
// library can be faster on this machine.
//
// Every input is loaded once and every output is stored once, which is the minimum. With p ranks, these are:
//
//   all_reduce      each rank owns 1/p of the vector: loads it from p inputs, stores the sum to p outputs
//   reduce_scatter  each rank loads its part from p inputs, stores the sum to its own output
//   all_gather      each rank loads its part once, stores it to p outputs
//   broadcast       each rank owns 1/p of the vector: loads it from the root, stores it to the p - 1 other ranks
//
// All four collectives use one loop over a range of elements, with some sources and some destinations. The loop has
// three variants. The fastest variant is the bound:
//
//   plain   stores stay in the cache
//   stream  stores bypass the cache
//   lines   short vectors only: ranks poll cache lines, each with 14 elements and the number of the call
//
// The time of `plain` and `stream` includes a barrier at the end, because a result is complete only after all ranks
// have stored their parts. Variant `lines` needs no barrier, because ranks wait for the number of the call in each
// line. Unlike the library, the bound checks no arguments, chooses no algorithm, and detects no failures.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "harness.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

namespace collectives::compare {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<float> kVector;
constexpr std::size_t kLine = 64 / sizeof(float);  // elements of a cache line; each rank's range ends on a cache line

/// Stores the sum of the sources in every destination, for the elements in [first, last).
template <bool stream>
void sum(const std::vector<const float*>& sources, const std::vector<float*>& destinations, std::size_t first,
         std::size_t last) {
  const std::size_t lanes = hn::Lanes(kVector), step = 4 * lanes;
  const auto store = [](auto value, float* to) HWY_ATTR {
    if constexpr (stream) {
      hn::Stream(value, kVector, to);
    } else {
      hn::StoreU(value, kVector, to);
    }
  };
  std::size_t i = first;
  for (; i + step <= last; i += step) {
    const float* source = sources[0] + i;
    auto a = hn::LoadU(kVector, source), b = hn::LoadU(kVector, source + lanes);
    auto c = hn::LoadU(kVector, source + 2 * lanes), d = hn::LoadU(kVector, source + 3 * lanes);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      source = sources[s] + i;
      a = hn::Add(a, hn::LoadU(kVector, source));
      b = hn::Add(b, hn::LoadU(kVector, source + lanes));
      c = hn::Add(c, hn::LoadU(kVector, source + 2 * lanes));
      d = hn::Add(d, hn::LoadU(kVector, source + 3 * lanes));
    }
    for (float* const destination : destinations) {
      store(a, destination + i);
      store(b, destination + i + lanes);
      store(c, destination + i + 2 * lanes);
      store(d, destination + i + 3 * lanes);
    }
  }
  for (; i < last; ++i) {
    float value = sources[0][i];
    for (std::size_t s = 1; s < sources.size(); ++s) value += sources[s][i];
    for (float* const destination : destinations) destination[i] = value;
  }
  if constexpr (stream) hwy::FlushStream();
}

/// One area of memory per rank, which all ranks have mapped.
struct Shared {
  std::vector<Mapping> of_rank;
  std::size_t bytes = 0;
};

/// Collective: all ranks call it. Makes and maps an area of `bytes` for each rank.
Shared share(SyncFile& sync, std::size_t bytes) {
  const int mine = ::memfd_create("compare_roofline", MFD_CLOEXEC);
  if (mine < 0 || ::ftruncate(mine, static_cast<off_t>(bytes)) != 0) {
    throw std::system_error(errno, std::generic_category(), "memory shared between ranks");
  }
  Shared shared{{}, bytes};
  const auto processes = sync.exchange(static_cast<std::uint64_t>(::getpid()));
  const auto files = sync.exchange(static_cast<std::uint64_t>(mine));
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    const std::string path = "/proc/" + std::to_string(processes[rank]) + "/fd/" + std::to_string(files[rank]);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) throw std::system_error(errno, std::generic_category(), path);
    shared.of_rank.emplace_back(file, bytes);
    ::close(file);
  }
  sync.barrier();  // all ranks have opened it
  ::close(mine);
  return shared;
}

/// Slots of cache lines in which a rank publishes short vectors. Each call uses the next slot.
class Lines {
 public:
  static constexpr std::size_t kMost = 1024;  ///< maximum number of elements of a call

  explicit Lines(SyncFile& sync)
      : sync_(sync),
        rank_(static_cast<std::size_t>(sync.rank())),
        shared_(share(sync, kSlots * kSlot * sizeof(Line))) {}

  void next_call() { ++call_; }

  /// Publishes the elements [first, last) of `values`.
  void show(const float* values, std::size_t first, std::size_t last) {
    if (first == last) return;
    Line* const lines = lines_of(rank_);
    for (std::size_t l = first / kElements; l * kElements < last; ++l) {
      const std::size_t count = std::min(kElements, last - l * kElements);
      std::memcpy(lines[l].values, values + l * kElements, count * sizeof(float));
      lines[l].call.store(call_, std::memory_order_release);
    }
  }

  /// Calls use(i, values, count) for the elements [first, last) that `rank` publishes, in the order of arrival.
  template <class Use>
  void take(std::size_t rank, std::size_t first, std::size_t last, Use&& use) {
    const Line* const lines = lines_of(rank);
    const int most = sync_.oversubscribed() ? 0 : kLooks;
    for (std::size_t l = first / kElements; l * kElements < last; ++l) {
      for (int looks = 0; lines[l].call.load(std::memory_order_acquire) != call_; ++looks)
        if (looks == most) sync_.wait_for(static_cast<int>(rank), lines[l].call, call_);
      const std::size_t begin = std::max(first, l * kElements), end = std::min(last, (l + 1) * kElements);
      use(begin, lines[l].values + begin % kElements, end - begin);
    }
  }

 private:
  static constexpr std::size_t kElements = 14;
  static constexpr std::size_t kSlot = (kMost + kElements - 1) / kElements;  // lines of one call
  static constexpr std::size_t kSlots = 64;  // slots of a rank; barriers keep a root from getting more calls ahead
  static constexpr int kLooks = 1000;        // polls before a wait that reads the clock
  struct Line {
    alignas(64) float values[kElements];
    std::atomic<std::uint64_t> call;
  };
  Line* lines_of(std::size_t rank) const {
    return reinterpret_cast<Line*>(shared_.of_rank[rank].data()) + call_ % kSlots * kSlot;
  }

  SyncFile& sync_;
  std::size_t rank_;
  Shared shared_;
  std::uint64_t call_ = 0;
};

class Roofline final : public Contender {
 public:
  enum class Variant { plain, stream, lines };

  Roofline(SyncFile& sync, Variant kind)
      : sync_(sync),
        kind_(kind),
        rank_(static_cast<std::size_t>(sync.rank())),
        ranks_(static_cast<std::size_t>(sync.ranks())),
        lines_(sync) {
    for (std::size_t rank = 0; rank < ranks_; ++rank)
      if (rank != rank_) others_.push_back(rank);
  }

  float* make_buffer(std::size_t count) override {
    return start_of(buffers_.emplace_back(share(sync_, count * sizeof(float))), rank_);
  }

  void all_reduce(const float* in, float* out, std::size_t count) override {
    if (in_lines(count)) {
      lines_.show(in, 0, count);
      const float* sum = in;
      for (const std::size_t rank : others_) {
        lines_.take(rank, 0, count, [&](std::size_t i, const float* values, std::size_t n) {
          for (std::size_t e = 0; e < n; ++e) out[i + e] = sum[i + e] + values[e];
        });
        sum = out;
      }
      return;
    }
    perform(everywhere(in), everywhere(out), slice(count, rank_), slice(count, rank_ + 1));
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    const std::size_t first = rank_ * part, last = first + part;
    if (in_lines(ranks_ * part)) {
      lines_.show(in, rank_ == 0 ? last : 0, rank_ + 1 == ranks_ ? first : ranks_ * part);
      float* const result = in == out ? out + first : out;
      const float* sum = in + first;
      for (const std::size_t rank : others_) {
        lines_.take(rank, first, last, [&](std::size_t i, const float* values, std::size_t n) {
          for (std::size_t e = 0; e < n; ++e) result[i - first + e] = sum[i - first + e] + values[e];
        });
        sum = result;
      }
      return result;
    }
    // In place, only the owner touches a part. Out of place, the part moves to the start of the output.
    float* const result = in == out ? out + rank_ * part : out;
    perform(everywhere(in + rank_ * part), {result}, 0, part);
    return result;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    if (in_lines(ranks_ * part)) {
      lines_.show(in, 0, part);
      if (in != out + rank_ * part) std::memcpy(out + rank_ * part, in, part * sizeof(float));
      for (const std::size_t rank : others_)
        lines_.take(rank, 0, part, [&](std::size_t i, const float* values, std::size_t n) {
          std::memcpy(out + rank * part + i, values, n * sizeof(float));
        });
      return;
    }
    std::vector<float*> destinations = everywhere(out + rank_ * part);
    std::erase(destinations, in);  // already there in place
    perform({in}, destinations, 0, part);
  }

  void broadcast(float* data, std::size_t count) override {
    if (in_lines(count)) {
      if (rank_ == 0) return lines_.show(data, 0, count);
      return lines_.take(0, 0, count, [&](std::size_t i, const float* values, std::size_t n) {
        std::memcpy(data + i, values, n * sizeof(float));
      });
    }
    std::vector<float*> destinations = everywhere(data);
    const float* const root = destinations.front();
    destinations.erase(destinations.begin());
    perform({root}, destinations, slice(count, rank_), slice(count, rank_ + 1));
  }

 private:
  static float* start_of(const Shared& buffer, std::size_t rank) {
    return reinterpret_cast<float*>(buffer.of_rank[rank].data());
  }

  /// Returns whether a call on `count` elements uses lines. If so, begins it.
  bool in_lines(std::size_t count) {
    if (kind_ != Variant::lines || count > Lines::kMost) return false;
    lines_.next_call();
    return true;
  }

  /// Returns the addresses in each rank's memory that correspond to `mine`.
  template <class T>
  std::vector<T*> everywhere(T* mine) const {
    std::vector<T*> result;
    for (const Shared& buffer : buffers_) {
      const float* const start = start_of(buffer, rank_);
      if (mine < start || mine >= start + buffer.bytes / sizeof(float)) continue;
      for (std::size_t rank = 0; rank < ranks_; ++rank) result.push_back(start_of(buffer, rank) + (mine - start));
    }
    return result;
  }

  /// Returns the first element of the slice of `rank`.
  std::size_t slice(std::size_t count, std::size_t rank) const {
    return rank == ranks_ ? count : count * rank / ranks_ / kLine * kLine;
  }

  void perform(const std::vector<const float*>& sources, const std::vector<float*>& destinations, std::size_t first,
               std::size_t last) {
    // Non-temporal stores need aligned destinations, but a slice of a part may begin inside a line.
    const bool aligned = std::ranges::all_of(destinations, [&](const float* to) {
      return reinterpret_cast<std::uintptr_t>(to + first) % (kLine * sizeof(float)) == 0;
    });
    if (kind_ == Variant::stream && aligned) {
      sum<true>(sources, destinations, first, last);
    } else {
      sum<false>(sources, destinations, first, last);
    }
    sync_.barrier();
  }

  SyncFile& sync_;
  const Variant kind_;
  const std::size_t rank_, ranks_;
  std::vector<std::size_t> others_;
  Lines lines_;
  std::vector<Shared> buffers_;
};

std::unique_ptr<Contender> make(SyncFile& sync, const std::string& variant) {
  using Variant = Roofline::Variant;
  for (const auto& [name, kind] :
       {std::pair("plain", Variant::plain), {"stream", Variant::stream}, {"lines", Variant::lines}})
    if (variant == name) return std::make_unique<Roofline>(sync, kind);
  throw BadArguments("--variant " + variant + ": known are plain, stream, lines");
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) { return collectives::compare::run_contender(argc, argv, collectives::compare::make); }
