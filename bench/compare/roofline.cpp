// The bound: what the collectives would cost if ranks could reach each other's vectors and never had to agree on
// anything but the end. Every input is loaded once and every output stored once, which is the least traffic there is:
//
//   all_reduce      each rank owns 1/p of the vector: loads it from p inputs, stores the sum to p outputs
//   reduce_scatter  each rank loads its part from p inputs, stores the sum to its own output
//   all_gather      each rank loads its part once, stores it to p outputs
//   broadcast       each rank owns 1/p of the vector: loads it from the root, stores it to the p - 1 others
//
// All four are one loop over a slice, some sources and some destinations. `plain` stores stay in the cache, `stream`
// stores go around it; the bound is the better of the two. The barrier at the end is part of the time: a result is not
// there before the others have stored it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "harness.hpp"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

namespace collectives::compare {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
constexpr hn::ScalableTag<float> kVector;
constexpr std::size_t kLine = 64 / sizeof(float);  // slices end on cache lines

/// The sum of the sources into every destination, from element `first` to before `last`.
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

/// A buffer of every rank, mapped by all.
struct SharedBuffer {
  std::vector<Mapping> of_rank;
  std::size_t count = 0;
};

class Roofline final : public Contender {
 public:
  Roofline(Meeting& meeting, bool stream)
      : meeting_(meeting),
        stream_(stream),
        rank_(static_cast<std::size_t>(meeting.rank())),
        ranks_(static_cast<std::size_t>(meeting.ranks())) {}

  float* make_buffer(std::size_t count) override {
    const std::size_t bytes = count * sizeof(float);
    const int mine = ::memfd_create("compare_roofline", MFD_CLOEXEC);
    if (mine < 0 || ::ftruncate(mine, static_cast<off_t>(bytes)) != 0) {
      throw std::system_error(errno, std::generic_category(), "memory shared between ranks");
    }
    SharedBuffer& buffer = buffers_.emplace_back();
    buffer.count = count;
    const auto processes = meeting_.exchange(static_cast<std::uint64_t>(::getpid()));
    const auto files = meeting_.exchange(static_cast<std::uint64_t>(mine));
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      const std::string path = "/proc/" + std::to_string(processes[rank]) + "/fd/" + std::to_string(files[rank]);
      const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      if (file < 0) throw std::system_error(errno, std::generic_category(), path);
      buffer.of_rank.emplace_back(file, bytes);
      ::close(file);
    }
    meeting_.barrier();  // all have opened it
    ::close(mine);
    return start_of(buffer, rank_);
  }

  void all_reduce(const float* in, float* out, std::size_t count) override {
    perform(everywhere(in), everywhere(out), slice(count, rank_), slice(count, rank_ + 1));
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    // In place, only the rank that owns a part touches it. Out of place, the part moves to the start of the output.
    float* const result = in == out ? out + rank_ * part : out;
    perform(everywhere(in + rank_ * part), {result}, 0, part);
    return result;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    std::vector<float*> destinations = everywhere(out + rank_ * part);
    std::erase(destinations, in);  // in place, it is there already
    perform({in}, destinations, 0, part);
  }

  void broadcast(float* data, std::size_t count) override {
    std::vector<float*> destinations = everywhere(data);
    const float* const root = destinations.front();
    destinations.erase(destinations.begin());
    perform({root}, destinations, slice(count, rank_), slice(count, rank_ + 1));
  }

 private:
  static float* start_of(const SharedBuffer& buffer, std::size_t rank) {
    return reinterpret_cast<float*>(buffer.of_rank[rank].data());
  }

  /// Where each rank has what this rank has at `mine`.
  template <class T>
  std::vector<T*> everywhere(T* mine) const {
    std::vector<T*> result;
    for (const SharedBuffer& buffer : buffers_) {
      const float* const start = start_of(buffer, rank_);
      if (mine < start || mine >= start + buffer.count) continue;
      for (std::size_t rank = 0; rank < ranks_; ++rank) result.push_back(start_of(buffer, rank) + (mine - start));
    }
    return result;
  }

  /// Where the slice of `rank` begins.
  std::size_t slice(std::size_t count, std::size_t rank) const {
    return rank == ranks_ ? count : count * rank / ranks_ / kLine * kLine;
  }

  void perform(const std::vector<const float*>& sources, const std::vector<float*>& destinations, std::size_t first,
               std::size_t last) {
    // A slice of a part need not begin on a line; non-temporal stores must.
    const bool aligned = std::ranges::all_of(destinations, [&](const float* to) {
      return reinterpret_cast<std::uintptr_t>(to + first) % (kLine * sizeof(float)) == 0;
    });
    if (stream_ && aligned) {
      sum<true>(sources, destinations, first, last);
    } else {
      sum<false>(sources, destinations, first, last);
    }
    meeting_.barrier();
  }

  Meeting& meeting_;
  const bool stream_;
  const std::size_t rank_, ranks_;
  std::vector<SharedBuffer> buffers_;
};

std::unique_ptr<Contender> make(Meeting& meeting, const std::string& variant) {
  if (variant != "plain" && variant != "stream") {
    throw BadArguments("--variant " + variant + ": known are plain, stream");
  }
  return std::make_unique<Roofline>(meeting, variant == "stream");
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) { return collectives::compare::run_contender(argc, argv, collectives::compare::make); }
