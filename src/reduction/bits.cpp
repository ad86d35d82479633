// Loops that combine bytes by bitwise and logical ops. Bitwise ops on longer integers also use these loops, because a
// bitwise op gives the same bits if it is applied byte by byte. All ops on booleans use these loops, too
// (equal_reduction.hpp).
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/bits.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

/// Kernel of one op on bytes: a class with the arithmetic of the op. If kTruth is true, every byte that is not 0 is
/// replaced by 1 before the op.
template <ReduceOp::Kind kKind, bool kTruth>
struct OfBytes : Sum<Same<std::uint8_t>> {
  template <class D>
  HWY_INLINE hn::Vec<D> term(D d, hn::Vec<D> stored, bool) const {
    if constexpr (kTruth) {
      return hn::Min(stored, hn::Set(d, std::uint8_t{1}));
    } else {
      return stored;
    }
  }
  template <class V>
  HWY_INLINE V combine(V a, V b) const {
    if constexpr (kKind == ReduceOp::Kind::bitwise_and) {
      return hn::And(a, b);
    } else if constexpr (kKind == ReduceOp::Kind::bitwise_or) {
      return hn::Or(a, b);
    } else {
      return hn::Xor(a, b);
    }
  }
};

FoldLoop bits(ReduceOp::Kind kind) {
  using Kind = ReduceOp::Kind;
  switch (kind) {
    case Kind::bitwise_and: return fold_by<OfBytes<Kind::bitwise_and, false>>;
    case Kind::bitwise_or: return fold_by<OfBytes<Kind::bitwise_or, false>>;
    case Kind::bitwise_xor: return fold_by<OfBytes<Kind::bitwise_xor, false>>;
    case Kind::logical_and: return fold_by<OfBytes<Kind::bitwise_and, true>>;
    case Kind::logical_or: return fold_by<OfBytes<Kind::bitwise_or, true>>;
    default: return fold_by<OfBytes<Kind::bitwise_xor, true>>;
  }
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(bits);
FoldLoop loop_of_bytes(ReduceOp::Kind kind) noexcept { return HWY_DYNAMIC_DISPATCH(bits)(kind); }

}  // namespace collectives
#endif
