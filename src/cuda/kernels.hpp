// Functions that start kernels, functions on a GPU, in a CUDA stream (`stream`, a cudaStream_t). The kernels reduce,
// convert and select values in GPU memory. Their results have the same bits as those of the functions for CPU memory in
// reduction/reduction.hpp and in the folder compression.
//
// Elements must be aligned to their size, because a GPU, unlike a CPU, accesses only aligned elements. No function
// waits or allocates memory. All kernels run on the current GPU of the thread. All functions throw Error{system} if
// CUDA reports an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "reduction/reduction.hpp"

namespace collectives::cuda {

using Stream = Device::Stream;

/// Maximum numbers of sources and destinations of a fold, which combines arrays element by element. Reason for the
/// limits: their addresses are arguments of the kernel.
inline constexpr std::size_t kMostSources = Device::kMostSources, kMostOuts = Device::kMostOuts;

/// Performs collectives::fold() for all ops except user ops. Takes at most kMostSources sources and kMostOuts
/// destinations. Reads every source once.
void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stream stream);

/// Converts to[i] = from[i] by the conversions of types.hpp. One type is f32, the other one f16 or bf16.
void cast(ConstBuffer from, Buffer to, Stream stream);

/// Adds the values of all ranks for one range of the vector, and encodes the sum for a message, in one pass. The
/// sources have type f32, f16 or bf16. They are added in their order, in f32. The sum is divided by `divisor`, and
/// rounded once to wire.type (f16 or bf16). Writes the rounded value to `wire`, and the same value as f32 to `seen`.
/// Receivers decode this value. Either `wire` or `seen` may be null. `wire` and `seen` must not overlap a source.
void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                       Buffer wire, float* seen, Stream stream);

/// Returns the size in bytes of the scratch memory that select() needs for k of n elements. The memory must be aligned
/// to 256 bytes.
std::size_t select_scratch_bytes(std::size_t n, std::size_t k);

using SelectInput = Device::SelectInput;
/// Performs Selector::select() of compression/select.hpp, without its threshold. Adds the gradient to `accumulated` and
/// selects min(k, n) of n < 2^32 elements of the sum. Writes their indices in ascending order, and their values. Sets
/// the selected elements to 0 in `accumulated`, and in `velocity` if masking. Reads and writes 16 bytes per element if
/// the magnitudes are spread. Many nearly equal magnitudes need more passes, of 4 bytes per element each.
void select(const SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
            Stream stream);

/// Returns the size in bytes of the scratch memory that sparse_add() needs for n elements. The memory must be zero
/// before the first call. Each call leaves it zero.
std::size_t sparse_scratch_bytes(std::size_t n);

using Term = Device::Term;
/// Performs SparseSum::add(). Adds the values of each element in the order of `terms`, divides by `divisor`, and writes
/// to sum[i]. Leaves elements without a value unchanged. Writes the number of elements with a value to `union_size`,
/// unless that is null.
void sparse_add(std::span<const Term> terms, float divisor, float* sum, void* scratch, std::uint32_t* union_size,
                Stream stream);

}  // namespace collectives::cuda
