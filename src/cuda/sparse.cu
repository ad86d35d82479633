// GPU kernels of SparseSum (compression/sparse.hpp), which adds the selected elements of several ranks. A term holds
// the indices and values of the elements of one rank. One kernel adds one term. The kernels run one after another, so
// the values of an element are added in the order of the terms. One bit per element tells whether the element has a
// value yet. The first value of an element is stored, not added to 0, because -0 + 0 is +0. The last kernels divide the
// sums, and clear the bits for the next call.
#include "cuda/launch.cuh"

namespace collectives::cuda {
namespace {

__global__ void __launch_bounds__(kThreads) add_term_kernel(const Term term, float* sum, std::uint32_t* touched) {
  for (std::size_t i = this_thread(); i < term.count; i += all_threads()) {
    const std::uint32_t index = term.indices[i], bit = 1U << index % 32;
    const bool first = (atomicOr(&touched[index / 32], bit) & bit) == 0;
    sum[index] = first ? term.values[i] : sum[index] + term.values[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    finish_term_kernel(const Term term, float* sum, float divisor, std::uint32_t* touched, std::uint32_t* union_size) {
  __shared__ std::uint32_t of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  std::uint32_t mine = 0;
  for (std::size_t i = this_thread(); i < term.count; i += all_threads()) {
    const std::uint32_t index = term.indices[i], bit = 1U << index % 32;
    if ((atomicAnd(&touched[index / 32], ~bit) & bit) == 0) continue;
    ++mine;
    if (divisor != 1) sum[index] = sum[index] / divisor;
  }
  if (union_size == nullptr) return;
  if (mine != 0) atomicAdd(&of_block, mine);
  __syncthreads();
  if (threadIdx.x == 0 && of_block != 0) atomicAdd(union_size, of_block);
}

}  // namespace

std::size_t sparse_scratch_bytes(std::size_t n) { return (n + 31) / 32 * sizeof(std::uint32_t); }

void sparse_add(std::span<const Term> terms, float divisor, float* sum, void* scratch, std::uint32_t* union_size,
                Stream stream) {
  auto* const touched = static_cast<std::uint32_t*>(scratch);
  if (union_size != nullptr)
    check(cudaMemsetAsync(union_size, 0, sizeof *union_size, static_cast<cudaStream_t>(stream)), "clearing");
  for (const Term& term : terms)
    if (term.count != 0) launch(add_term_kernel, term.count, stream, term, sum, touched);
  for (const Term& term : terms)
    if (term.count != 0) launch(finish_term_kernel, term.count, stream, term, sum, divisor, touched, union_size);
}

}  // namespace collectives::cuda
