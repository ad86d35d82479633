// GPU kernels of fold(), cast() and cast_reduce_scale() (cuda/kernels.hpp). Function fold() combines several sources
// element by element. Function cast() converts between types. Function cast_reduce_scale() adds sources, divides and
// rounds the sum. If all arrays are suitably aligned, a thread reads 16 bytes of each source at a time. It reads the
// sources in the order of the arguments. Neighbouring threads read neighbouring bytes, so their loads cover whole cache
// lines. Every byte is read only once.
#include "cuda/launch.cuh"
#include "reduction/elements.hpp"

namespace collectives::cuda {
namespace {

struct Sources {
  const std::byte* data[kMostSources];
  std::uint64_t unreduced[kMostSources / 64];
  int count;
  __device__ bool is_raw(int s) const {
    const auto bit = static_cast<unsigned>(s);
    return (unreduced[bit / 64] >> bit % 64 & 1) != 0;
  }
};
struct Outs {
  std::byte* data[kMostOuts];
  int count;
};

template <class Kernel>
__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ Sources sources, const Outs outs,
                                                        std::size_t count, std::uintptr_t lies, Kernel kernel) {
  using Stored = typename Kernel::Stored;
  using Wide = typename Kernel::Wide;
  constexpr std::size_t kLanes = kVectorBytes / sizeof(Stored);
  const Pieces pieces = pieces_of(lies, count, sizeof(Stored));
  for (std::size_t v = this_thread(); v < pieces.vectors; v += all_threads()) {
    const std::size_t at = (pieces.lead + v * kLanes) * sizeof(Stored);
    Wide wide[kLanes];
    auto stored = *reinterpret_cast<const Vector<Stored>*>(sources.data[0] + at);
#pragma unroll
    for (std::size_t l = 0; l < kLanes; ++l) wide[l] = kernel.term(stored.lane[l], sources.is_raw(0));
#pragma unroll 4
    for (int s = 1; s < sources.count; ++s) {
      stored = *reinterpret_cast<const Vector<Stored>*>(sources.data[s] + at);
#pragma unroll
      for (std::size_t l = 0; l < kLanes; ++l)
        wide[l] = kernel.combine(wide[l], kernel.term(stored.lane[l], sources.is_raw(s)));
    }
#pragma unroll
    for (std::size_t l = 0; l < kLanes; ++l) stored.lane[l] = kernel.result(wide[l]);
    for (int o = 0; o < outs.count; ++o) *reinterpret_cast<Vector<Stored>*>(outs.data[o] + at) = stored;
  }
  for (std::size_t s = this_thread(); s < pieces.lead + pieces.tail; s += all_threads()) {
    const std::size_t i = single(pieces, count, s);
    const auto element = [&](int source) { return reinterpret_cast<const Stored*>(sources.data[source])[i]; };
    Wide wide = kernel.term(element(0), sources.is_raw(0));
    for (int source = 1; source < sources.count; ++source)
      wide = kernel.combine(wide, kernel.term(element(source), sources.is_raw(source)));
    for (int o = 0; o < outs.count; ++o) reinterpret_cast<Stored*>(outs.data[o])[i] = kernel.result(wide);
  }
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    cast_kernel(const From* from, To* to, std::size_t count, std::uintptr_t lies) {
  // Number of elements that a thread converts at a time: 16 bytes of the narrower type, 32 bytes of the wider type.
  constexpr int kLanes = kVectorBytes / 2;
  struct alignas(kVectorBytes) Wide {
    From lane[kLanes];
  };
  struct alignas(kVectorBytes) Narrow {
    To lane[kLanes];
  };
  const Pieces pieces = pieces_of(lies, count, 2);
  for (std::size_t v = this_thread(); v < pieces.vectors; v += all_threads()) {
    const std::size_t i = pieces.lead + v * kLanes;
    const Wide in = *reinterpret_cast<const Wide*>(from + i);
    Narrow out;
#pragma unroll
    for (int l = 0; l < kLanes; ++l) out.lane[l] = static_cast<To>(static_cast<float>(in.lane[l]));
    *reinterpret_cast<Narrow*>(to + i) = out;
  }
  for (std::size_t s = this_thread(); s < pieces.lead + pieces.tail; s += all_threads()) {
    const std::size_t i = single(pieces, count, s);
    to[i] = static_cast<To>(static_cast<float>(from[i]));
  }
}

template <class T, class Half>
__global__ void __launch_bounds__(kThreads)
    cast_reduce_scale_kernel(const __grid_constant__ Sources sources, std::size_t count, float divisor, Half* wire,
                             float* seen, std::uintptr_t lies) {
  constexpr int kLanes = kVectorBytes / 2;
  struct alignas(kVectorBytes) Coded {
    T lane[kLanes];
  };
  struct alignas(kVectorBytes) HalfFloats {
    Half lane[kLanes];
  };
  struct alignas(kVectorBytes) Floats {
    float lane[kLanes];
  };
  const auto rounded = [divisor](float sum) { return static_cast<Half>(divisor != 1 ? sum / divisor : sum); };
  const Pieces pieces = pieces_of(lies, count, 2);
  for (std::size_t v = this_thread(); v < pieces.vectors; v += all_threads()) {
    const std::size_t i = pieces.lead + v * kLanes;
    const auto load = [&](int s) { return *reinterpret_cast<const Coded*>(sources.data[s] + i * sizeof(T)); };
    Floats sum;
    Coded term = load(0);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) sum.lane[l] = static_cast<float>(term.lane[l]);
#pragma unroll 4
    for (int s = 1; s < sources.count; ++s) {
      term = load(s);
#pragma unroll
      for (int l = 0; l < kLanes; ++l) sum.lane[l] = sum.lane[l] + static_cast<float>(term.lane[l]);
    }
    HalfFloats out;
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      out.lane[l] = rounded(sum.lane[l]);
      sum.lane[l] = static_cast<float>(out.lane[l]);
    }
    if (wire != nullptr) *reinterpret_cast<HalfFloats*>(wire + i) = out;
    if (seen != nullptr) *reinterpret_cast<Floats*>(seen + i) = sum;
  }
  for (std::size_t s = this_thread(); s < pieces.lead + pieces.tail; s += all_threads()) {
    const std::size_t i = single(pieces, count, s);
    const auto term = [&](int source) {
      return static_cast<float>(reinterpret_cast<const T*>(sources.data[source])[i]);
    };
    float sum = term(0);
    for (int source = 1; source < sources.count; ++source) sum = sum + term(source);
    const Half out = rounded(sum);
    if (wire != nullptr) wire[i] = out;
    if (seen != nullptr) seen[i] = static_cast<float>(out);
  }
}

std::uintptr_t lies(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes; }

/// Returns `so_far` if `address` is null or a multiple of 16 bytes, otherwise kUnlike. It is for kernels with arrays of
/// two element sizes. Threads access these arrays 16 bytes at a time only if each array begins at a multiple of 16
/// bytes. Otherwise the arrays would need different numbers of single elements before the first access of 16 bytes.
std::uintptr_t lies_at_start(std::uintptr_t so_far, const void* address) {
  return address == nullptr || lies(address) == 0 ? so_far : kUnlike;
}

template <class Visit>
void with_half(DataType type, Visit&& visit) {
  type == DataType::f16 ? visit(float16()) : visit(bfloat16());
}

}  // namespace

void fold(const ReduceOp& op, DataType type, std::span<const Source> sources, std::span<std::byte* const> outs,
          std::size_t count, int finish_ranks, Stream stream) {
  if (sources.empty() || sources.size() > kMostSources || outs.empty() || outs.size() > kMostOuts)
    throw Error(Errc::unsupported, "a GPU folds 1 to 256 sources into 1 to 8 outs");
  if (count == 0) return;
  Sources from{};
  Outs to{};
  std::uintptr_t all_lie = lies(sources[0].data);
  for (const Source& source : sources) {
    const auto s = static_cast<std::size_t>(from.count++);
    from.data[s] = source.data;
    from.unreduced[s / 64] |= std::uint64_t{source.unreduced} << s % 64;
    all_lie = alike(all_lie, source.data);
  }
  for (std::byte* const out : outs) {
    to.data[to.count++] = out;
    all_lie = alike(all_lie, out);
  }
  const bool found =
      elements::with_kernel_for(op, type, finish_ranks, finish_ranks == 0, [&](auto kernel, std::size_t times) {
        using Kernel = decltype(kernel);
        const std::size_t all = count * times;
        launch(fold_kernel<Kernel>, pieces_of(all_lie, all, sizeof(typename Kernel::Stored)).items(), stream, from, to,
               all, all_lie, kernel);
      });
  if (!found) throw Error(Errc::unsupported, "a GPU has no kernel for this reduction");
}

void cast(ConstBuffer from, Buffer to, Stream stream) {
  if (from.count == 0) return;
  std::uintptr_t all_lie = lies_at_start(0, from.data);
  all_lie = lies_at_start(all_lie, to.data);
  const std::size_t items = pieces_of(all_lie, from.count, 2).items();
  const bool narrows = from.type == DataType::f32;
  with_half(narrows ? to.type : from.type, [&](auto half) {
    using Half = decltype(half);
    if (narrows) {
      launch(cast_kernel<float, Half>, items, stream, static_cast<const float*>(from.data), static_cast<Half*>(to.data),
             from.count, all_lie);
    } else {
      launch(cast_kernel<Half, float>, items, stream, static_cast<const Half*>(from.data), static_cast<float*>(to.data),
             from.count, all_lie);
    }
  });
}

void cast_reduce_scale(DataType type, std::span<const std::byte* const> sources, std::size_t count, float divisor,
                       Buffer wire, float* seen, Stream stream) {
  if (sources.empty() || sources.size() > kMostSources)
    throw Error(Errc::unsupported, "a GPU adds 1 to 256 contributions");
  if (count == 0) return;
  Sources from{};
  std::uintptr_t all_lie = lies_at_start(lies_at_start(0, wire.data), seen);
  for (const std::byte* const source : sources) {
    from.data[from.count++] = source;
    all_lie = lies_at_start(all_lie, source);
  }
  const std::size_t items = pieces_of(all_lie, count, 2).items();
  with_half(wire.type, [&](auto half) {
    using Half = decltype(half);
    const auto start = [&](auto coded) {
      launch(cast_reduce_scale_kernel<decltype(coded), Half>, items, stream, from, count, divisor,
             static_cast<Half*>(wire.data), seen, all_lie);
    };
    type == DataType::f32 ? start(float()) : type == DataType::f16 ? start(float16()) : start(bfloat16());
  });
}

}  // namespace collectives::cuda
