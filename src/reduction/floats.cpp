// f32 and f64: added and multiplied as they are.
#include "reduction/family.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/floats.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

void floats(ReduceOp::Kind kind, DataType type, const Operands& all) {
  if (type == DataType::f32) return fold_format<Same<float>>(kind, all);
  fold_format<Same<double>>(kind, all);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(floats);
void fold_floats(ReduceOp::Kind kind, DataType type, const Operands& all) {
  HWY_DYNAMIC_DISPATCH(floats)(kind, type, all);
}

}  // namespace collectives
#endif
