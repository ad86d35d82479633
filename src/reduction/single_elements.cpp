// Loops of the reductions that have no hand-written vector code: products of complex numbers, min_loc and max_loc, and
// logical ops on u16, u32 and u64. The loops call the arithmetic for single elements (elements.hpp). A loop processes
// one block of elements at a time, and adds one source after another to the block. The compiler can thus use vector
// instructions.
#include <algorithm>
#include <cstring>

#include "reduction/dispatch.hpp"
#include "reduction/elements.hpp"

namespace collectives {
namespace {

template <class Kernel>
void fold_singly(const Operands& all) {
  using Stored = typename Kernel::Stored;
  constexpr std::size_t kElements = 4096 / sizeof(Stored);
  constexpr Kernel kernel{};
  typename Kernel::Wide values[kElements];
  Stored results[kElements];
  for (std::size_t begin = 0; begin < all.count; begin += kElements) {
    const std::size_t count = std::min(kElements, all.count - begin);
    const auto term = [&](const Source& source, std::size_t i) {
      Stored stored;
      std::memcpy(&stored, source.data + (begin + i) * sizeof(Stored), sizeof(Stored));
      return kernel.term(stored, source.unreduced);
    };
    for (std::size_t i = 0; i < count; ++i) values[i] = term(all.sources[0], i);
    for (const Source& source : all.sources.subspan(1)) {
      for (std::size_t i = 0; i < count; ++i) values[i] = kernel.combine(values[i], term(source, i));
    }
    for (std::size_t i = 0; i < count; ++i) results[i] = kernel.result(values[i]);
    for (const auto& outs : {all.outs, all.streamed}) {
      for (std::byte* const out : outs) std::memcpy(out + begin * sizeof(Stored), results, count * sizeof(Stored));
    }
  }
}

template <class T>
FoldLoop loop_of_element(ReduceOp::Kind kind) noexcept {
  FoldLoop loop = nullptr;
  const auto take = [&]<class Kernel>(const Kernel&) { loop = fold_singly<Kernel>; };
  if constexpr (elements::kPair<T> || elements::kComplex<T>) {
    elements::with_kernel<T>(kind, {}, take);
  } else {
    elements::with_kernel_of_bits<T>(kind, take);
  }
  return loop;
}

}  // namespace

FoldLoop loop_of_single_elements(ReduceOp::Kind kind, DataType type) noexcept {
  using namespace elements;
  switch (type) {
    case DataType::complex64: return loop_of_element<Complex<float>>(kind);
    case DataType::complex128: return loop_of_element<Complex<double>>(kind);
    case DataType::f32_index: return loop_of_element<Pair<float>>(kind);
    case DataType::f64_index: return loop_of_element<Pair<double>>(kind);
    case DataType::i64_index: return loop_of_element<Pair<std::int64_t>>(kind);
    case DataType::i32_index: return loop_of_element<Pair<std::int32_t>>(kind);
    case DataType::i16_index: return loop_of_element<Pair<std::int16_t>>(kind);
    case DataType::u16: return loop_of_element<std::uint16_t>(kind);
    case DataType::u32: return loop_of_element<std::uint32_t>(kind);
    default: return loop_of_element<std::uint64_t>(kind);
  }
}

}  // namespace collectives
