// The kernels, as functions that put them into a stream: the twins of reduction.hpp and of compression/, with the same
// bits, on memory of a device.
//
// Elements lie at multiples of their size; unlike a processor, a GPU reads them nowhere else. Nothing here waits or
// takes memory. All run on the current device; `stream` is a cudaStream_t. Throws Error{system} for what CUDA refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/types.hpp"
#include "device/device.hpp"
#include "reduction/reduction.hpp"

namespace collectives::cuda {

using Stream = Device::Stream;

/// Sources and outs of a fold: their addresses travel with the launch.
inline constexpr std::size_t kMostSources = Device::kMostSources, kMostOuts = Device::kMostOuts;

/// As collectives::fold(), but for user ops. At most kMostSources sources and kMostOuts outs. Reads every source once.
void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stream stream);

/// to[i] = from[i] as another type, with the conversions of types.hpp. One of the types is f32, the other f16 or bf16.
void cast(ConstBuffer from, Buffer to, Stream stream);

/// What the owner of a slice does with coded contributions, in one pass: the f32 sum of `sources`, of type f32, f16 or
/// bf16, in their order, divided by `divisor`, rounded to wire.type (f16 or bf16) once, and what others will read out
/// of it as f32 in `seen`. Either out may be null. Neither overlaps a source.
void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                       Buffer wire, float* seen, Stream stream);

/// Bytes of scratch memory, at a multiple of 256, that select() needs for k of n elements.
std::size_t select_scratch_bytes(std::size_t n, std::size_t k);

/// As Selector::select(), without a threshold: adds, chooses min(k, n) elements of n < 2^32, writes their indices,
/// ascending, and values, and clears them in `accumulated` and, if masking, in `velocity`. Moves 16 bytes an element
/// where the magnitudes are spread, 4 more for each further pass over ties.
using SelectInput = Device::SelectInput;
void select(const SelectInput& input, std::size_t k, std::uint32_t* indices, float* values, void* scratch,
            Stream stream);

/// Bytes of scratch memory that sparse_add() needs for n elements: all zero before the first call and after each.
std::size_t sparse_scratch_bytes(std::size_t n);

using Term = Device::Term;
/// As SparseSum::add(): sum[i] = (the values for element i in the order of `terms`, added) / divisor where there are
/// any; the others stay. How many there are any for comes to `union_size`, which may be null.
void sparse_add(std::span<const Term> terms, float divisor, float* sum, void* scratch, std::uint32_t* union_size,
                Stream stream);

}  // namespace collectives::cuda
