// f16 and bf16: f32 while they are combined, rounded once.
//
// The rounding is that of types.hpp, in integer arithmetic with choices in place of branches. Only f16 has instructions
// that give the same bits; those for bf16 flush denormals.
#include "reduction/family.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/halves.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

void halves(ReduceOp::Kind kind, DataType type, const Operands& all) {
  if (type == DataType::f16) return fold_format<HalfFloat>(kind, all);
  fold_format<BrainFloat>(kind, all);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(halves);
void fold_halves(ReduceOp::Kind kind, DataType type, const Operands& all) {
  HWY_DYNAMIC_DISPATCH(halves)(kind, type, all);
}

}  // namespace collectives
#endif
