// Loops that reduce f16 and bf16 elements by sum, average, product or pre_scaled_sum. Elements are combined in f32. The
// result is rounded to 16 bits once.
//
// types.hpp defines the bits of the results. Processor instructions give these bits for f16, but not for bf16, because
// those for bf16 replace denormals by 0. Rounding to bf16 therefore uses integer arithmetic (formats.hpp).
#include "reduction/dispatch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduction/half_reduction.cpp"
#include <hwy/foreach_target.h>

#include "reduction/loops.hpp"

HWY_BEFORE_NAMESPACE();
namespace collectives::HWY_NAMESPACE {

FoldLoop halves(ReduceOp::Kind kind, DataType type) {
  return type == DataType::f16 ? loop_of_format<HalfFloat>(kind) : loop_of_format<BrainFloat>(kind);
}

}  // namespace collectives::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace collectives {

HWY_EXPORT(halves);
FoldLoop loop_of_half_floats(ReduceOp::Kind kind, DataType type) noexcept {
  return HWY_DYNAMIC_DISPATCH(halves)(kind, type);
}

}  // namespace collectives
#endif
