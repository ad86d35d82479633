// GPU kernels of radix_select(), which selects the k elements of greatest magnitude (compression/radix_select.hpp).
// Magnitude and index of an element form one number. The search finds the k-th greatest number digit by digit, from the
// most significant digit. A digit is a group of 10 or 11 bits. Kernels count how often each value of a digit occurs.
// Each block of threads first counts in its shared memory. Gradients have few different exponents, so many threads
// would increment the same counter. A block therefore has kCopies copies of the counters, and each copy serves some of
// its threads. Candidates are the elements that can still be selected. CUB, NVIDIA's library of GPU algorithms,
// collects the candidates in one pass. At the end, CUB collects the selected elements in another pass. Both passes keep
// the order of indices.
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

#include <algorithm>
#include <cub/device/device_select.cuh>
#include <utility>

#include "compression/radix_select.hpp"
#include "cuda/launch.cuh"

namespace collectives::cuda {
namespace {

using namespace radix;
using Indices = thrust::counting_iterator<std::uint32_t>;

constexpr int kCopies = 4;

/// Scratch memory of a selection.
struct Scratch {
  Search* search;
  std::uint32_t* counts;      ///< One counter for each of the kBins values of a digit.
  std::uint32_t* candidates;  ///< Indices of the candidates, the elements that can still be selected.
  void* selection;            ///< Scratch memory of CUB.
  std::size_t selection_bytes;
};

constexpr std::size_t kAlignment = 256;
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct MayBeChosen {
  Input in;
  const Search* search;
  __device__ bool operator()(std::uint32_t index) const {
    return may_be_chosen(*search, order_of(__float_as_uint(sum_at(in, index)), index));
  }
};
/// Predicate on the position of a candidate: true if the candidate is selected.
struct Chosen {
  Input in;
  const Search* search;
  const std::uint32_t* candidates;
  __device__ bool operator()(std::uint32_t c) const {
    if (c >= search->candidates) return false;
    const std::uint32_t index = candidates[c];
    return may_be_chosen(*search, order_of(__float_as_uint(sum_at(in, index)), index));
  }
};
/// Map from the position of a candidate to its index.
struct CandidateAt {
  const std::uint32_t* candidates;
  __device__ std::uint32_t operator()(std::uint32_t c) const { return candidates[c]; }
};

__global__ void begin_kernel(Search* search, std::uint32_t* counts, std::size_t n, std::size_t k) {
  for (std::uint32_t bin = threadIdx.x; bin < kBins; bin += blockDim.x) counts[bin] = 0;
  if (threadIdx.x == 0) *search = begin(n, k);
}

/// Counters of a block of threads. finish() adds them to the counters of the whole kernel.
class BlockCounts {
 public:
  __device__ explicit BlockCounts(std::uint32_t (&mine)[kCopies][kBins]) : mine_(mine) {
    for (std::uint32_t bin = threadIdx.x; bin < kCopies * kBins; bin += blockDim.x) (&mine_[0][0])[bin] = 0;
    __syncthreads();
  }
  __device__ void add(std::uint32_t bin) { atomicAdd(&mine_[threadIdx.x / 32 % kCopies][bin], 1U); }
  __device__ void finish(std::uint32_t* all) {
    __syncthreads();
    for (std::uint32_t bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
      std::uint32_t count = 0;
      for (int copy = 0; copy < kCopies; ++copy) count += mine_[copy][bin];
      if (count != 0) atomicAdd(&all[bin], count);
    }
  }

 private:
  std::uint32_t (&mine_)[kCopies][kBins];
};

/// Adds the gradient and counts the first digits of all elements. kVectored: processes four elements at a time.
template <bool kVectored>
__global__ void __launch_bounds__(kThreads)
    add_kernel(Input in, std::size_t n, std::uintptr_t lies, std::uint32_t* counts) {
  __shared__ std::uint32_t mine[kCopies][kBins];
  BlockCounts block(mine);
  const auto count = [&](float value, std::size_t i) {
    block.add(digit_of(order_of(__float_as_uint(value), static_cast<std::uint32_t>(i)), 0));
  };
  const Pieces pieces = pieces_of(kVectored ? lies : kUnlike, n, sizeof(float));
  using Four = Vector<float>;
  for (std::size_t v = this_thread(); v < pieces.vectors; v += all_threads()) {
    const std::size_t i = pieces.lead + 4 * v;
    Four gradient = *reinterpret_cast<const Four*>(in.gradient + i), accumulated{}, velocity{};
    if (in.accumulated != nullptr) accumulated = *reinterpret_cast<const Four*>(in.accumulated + i);
    if (in.velocity != nullptr) velocity = *reinterpret_cast<const Four*>(in.velocity + i);
    const Input four{gradient.lane, in.accumulated != nullptr ? accumulated.lane : nullptr,
                     in.velocity != nullptr ? velocity.lane : nullptr, in.momentum, in.scale};
#pragma unroll
    for (std::size_t l = 0; l < 4; ++l) count(add(four, l), i + l);
    if (in.accumulated != nullptr) *reinterpret_cast<Four*>(in.accumulated + i) = accumulated;
    if (in.velocity != nullptr) *reinterpret_cast<Four*>(in.velocity + i) = velocity;
  }
  for (std::size_t s = this_thread(); s < pieces.lead + pieces.tail; s += all_threads()) {
    const std::size_t i = single(pieces, n, s);
    count(add(in, i), i);
  }
  block.finish(counts);
}

__global__ void __launch_bounds__(kThreads)
    count_all_kernel(Input in, std::size_t n, std::size_t k, std::size_t capacity, const Search* search,
                     std::uint32_t* counts) {
  __shared__ std::uint32_t mine[kCopies][kBins];
  const Search now = *search;
  if (few(now, k, capacity) || now.digits == kDigits) return;
  BlockCounts block(mine);
  for (std::size_t i = this_thread(); i < n; i += all_threads()) {
    const std::uint64_t order = order_of(__float_as_uint(sum_at(in, i)), static_cast<std::uint32_t>(i));
    if (alike(now, order)) block.add(digit_of(order, now.digits));
  }
  block.finish(counts);
}

__global__ void __launch_bounds__(kThreads)
    count_candidates_kernel(Input in, const std::uint32_t* candidates, const Search* search, std::uint32_t* counts) {
  __shared__ std::uint32_t mine[kCopies][kBins];
  const Search now = *search;
  if (now.digits == kDigits) return;
  BlockCounts block(mine);
  for (std::size_t c = this_thread(); c < now.candidates; c += all_threads()) {
    const std::uint64_t order = order_of(__float_as_uint(sum_at(in, candidates[c])), candidates[c]);
    if (alike(now, order)) block.add(digit_of(order, now.digits));
  }
  block.finish(counts);
}

/// Finds the next digit from the counters. Runs as one block with at least one thread per group of counters. `all`:
/// whether count_all_kernel has counted. In this case, the kernel does nothing if the candidates fit in memory.
__global__ void __launch_bounds__(kThreads)
    find_kernel(Search* search, std::uint32_t* counts, std::size_t k, std::size_t capacity, bool all) {
  static_assert(kThreads >= kBins / kGroup);
  __shared__ std::uint32_t bins[kBins], sums[kBins / kGroup];
  if (search->digits == kDigits || (all && few(*search, k, capacity))) return;
  for (std::uint32_t bin = threadIdx.x; bin < kBins; bin += blockDim.x) {
    bins[bin] = counts[bin];
    counts[bin] = 0;
  }
  __syncthreads();
  if (threadIdx.x < kBins / kGroup) {
    std::uint32_t sum = 0;
    for (std::uint32_t bin = 0; bin < kGroup; ++bin) sum += bins[threadIdx.x * kGroup + bin];
    sums[threadIdx.x] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) find_digit(*search, bins, sums);
}

__global__ void __launch_bounds__(kThreads)
    take_kernel(Input in, std::uint32_t* indices, float* values, std::size_t k, bool masking) {
  for (std::size_t c = this_thread(); c < k; c += all_threads()) {
    const std::uint32_t index = indices[c];
    values[c] = sum_at(in, index);
    if (in.accumulated != nullptr) in.accumulated[index] = 0;
    if (in.velocity != nullptr && masking) in.velocity[index] = 0;
  }
}

class Engine {
 public:
  Engine(const Input& in, std::size_t n, std::size_t k, const Scratch& scratch, std::uint32_t* chosen, Stream stream)
      : in_(in),
        n_(n),
        k_(k),
        capacity_(candidate_capacity(n, k)),
        scratch_(scratch),
        chosen_(chosen),
        stream_(stream) {}

  void add_and_find() {
    launch_blocks(begin_kernel, 1, stream_, scratch_.search, scratch_.counts, n_, k_);
    std::uintptr_t lies = reinterpret_cast<std::uintptr_t>(in_.gradient) % kVectorBytes;
    if (in_.accumulated != nullptr) lies = cuda::alike(lies, in_.accumulated);
    if (in_.velocity != nullptr) lies = cuda::alike(lies, in_.velocity);
    launch(lies == kUnlike ? add_kernel<false> : add_kernel<true>, (n_ + 3) / 4, stream_, in_, n_, lies,
           scratch_.counts);
    find(false);
  }
  void find_among_all() {
    launch(count_all_kernel, n_, stream_, in_, n_, k_, capacity_, scratch_.search, scratch_.counts);
    find(true);
  }
  void collect() {
    select(Indices(0), scratch_.candidates, &scratch_.search->candidates, n_, MayBeChosen{in_, scratch_.search});
  }
  void find_among_candidates() {
    launch(count_candidates_kernel, capacity_, stream_, in_, scratch_.candidates, scratch_.search, scratch_.counts);
    find(false);
  }
  void choose() {
    const auto out = thrust::make_transform_output_iterator(chosen_, CandidateAt{scratch_.candidates});
    select(Indices(0), out, &scratch_.search->chosen, capacity_, Chosen{in_, scratch_.search, scratch_.candidates});
  }

 private:
  void find(bool all) { launch_blocks(find_kernel, 1, stream_, scratch_.search, scratch_.counts, k_, capacity_, all); }
  template <class From, class To, class Which>
  void select(From from, To to, std::uint32_t* selected, std::size_t n, Which which) {
    std::size_t bytes = scratch_.selection_bytes;
    check(cub::DeviceSelect::If(scratch_.selection, bytes, from, to, selected, static_cast<std::int64_t>(n), which,
                                static_cast<cudaStream_t>(stream_)),
          "selection");
  }

  const Input in_;
  const std::size_t n_, k_, capacity_;
  const Scratch scratch_;
  std::uint32_t* const chosen_;
  const Stream stream_;
};

/// Returns the size in bytes of the scratch memory that CUB needs for either selection.
std::size_t selection_bytes(std::size_t n, std::size_t capacity) {
  std::size_t all = 0, among_candidates = 0;
  const auto count = [](std::size_t items) { return static_cast<std::int64_t>(items); };
  std::uint32_t* const none = nullptr;
  check(cub::DeviceSelect::If(nullptr, all, Indices(0), none, none, count(n), MayBeChosen{}), "selection");
  check(cub::DeviceSelect::If(nullptr, among_candidates, Indices(0),
                              thrust::make_transform_output_iterator(none, CandidateAt{}), none, count(capacity),
                              Chosen{}),
        "selection");
  return std::max(all, among_candidates);
}

__global__ void __launch_bounds__(kThreads) count_up_kernel(std::uint32_t* indices, std::size_t n) {
  for (std::size_t i = this_thread(); i < n; i += all_threads()) indices[i] = static_cast<std::uint32_t>(i);
}

}  // namespace

std::size_t select_scratch_bytes(std::size_t n, std::size_t k) {
  const std::size_t capacity = candidate_capacity(n, std::min(n, k));
  return aligned(sizeof(Search)) + aligned(kBins * sizeof(std::uint32_t)) + aligned(capacity * sizeof(std::uint32_t)) +
         aligned(selection_bytes(n, capacity));
}

void select(const SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
            Stream stream) {
  const std::size_t n = input.n;
  if (n == 0) return;
  k = std::min(k, n);
  const Input in{input.gradient, input.accumulated, input.velocity, input.momentum, input.scale};
  auto* next = static_cast<std::byte*>(scratch);
  const auto take = [&](std::size_t bytes) { return std::exchange(next, next + aligned(bytes)); };
  Scratch parts{};
  parts.search = reinterpret_cast<Search*>(take(sizeof(Search)));
  parts.counts = reinterpret_cast<std::uint32_t*>(take(kBins * sizeof(std::uint32_t)));
  parts.candidates = reinterpret_cast<std::uint32_t*>(take(candidate_capacity(n, k) * sizeof(std::uint32_t)));
  parts.selection = next;
  parts.selection_bytes = selection_bytes(n, candidate_capacity(n, k));
  Engine engine(in, n, k, parts, indices, stream);
  if (k == 0 || k == n) {
    engine.add_and_find();
    if (k != 0) launch(count_up_kernel, n, stream, indices, n);
  } else {
    radix_select(engine);
  }
  if (k != 0) launch(take_kernel, k, stream, in, indices, values, k, input.masking);
}

}  // namespace collectives::cuda
