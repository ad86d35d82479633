// Loops that reduce f32 and f64 elements by sum, average, product or pre_scaled_sum. The loops compute in the type of
// the elements.
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/floats.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

FoldLoop floats(ReduceOp::Kind kind, DataType type) {
  return type == DataType::f32 ? loop_of_format<Same<float>>(kind) : loop_of_format<Same<double>>(kind);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(floats);
FoldLoop loop_of_floats(ReduceOp::Kind kind, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(floats)(kind, type);
}

}  // namespace collectives
#endif
