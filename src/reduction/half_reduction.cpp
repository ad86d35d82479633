// Loops that reduce f16 and bf16 elements by sum, average, product or pre_scaled_sum. The loops convert elements to f32
// and combine them there. Each result is rounded to 16 bits only once.
//
// The header collectives/types.hpp defines the bits of the results. For f16, the processor's conversion instructions
// give these bits. The instructions for bf16 do not, because they replace denormals by 0. The rounding to bf16
// therefore uses integer arithmetic (formats.hpp).
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
