// Implementation of the phases of a top-k call in which only the ranks of one host take part. In a call with these
// phases, the ranks of a host first add their gradients. Each phase is one collective through shared memory: a
// reduce-scatter, an all-reduce or an all-gather.
#include "compression/top_k/in_host_phase.hpp"

#include <cstdint>

#include "execution/multi_phase_operation.hpp"
#include "hierarchical/hierarchical.hpp"
#include "steps/algorithm.hpp"

namespace collectives {
namespace {

Peers owners(const RankView& view, const Parts& slices) {
  return view.grid.numbers.first(static_cast<std::size_t>(slices.size()));
}
void emit_add_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_reduce_scatter, args.parts, owners(view, args.parts),
                              {.finish = false}));
}
void emit_agree_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_reduce, args.parts, owners(view, args.parts), {}));
}
void emit_share_inside(const RankView& view, const RoundArgs& args, StepSink& run) {
  run(hierarchical::host_step(Step::Kind::host_all_gather, args.parts, owners(view, args.parts),
                              {.source = Place::output}));
}

constexpr Algorithm kAddInside = phase_algorithm("top_k_add_inside", emit_add_inside);
constexpr Algorithm kAgreeInside = phase_algorithm("top_k_agree_inside", emit_agree_inside);
constexpr Algorithm kShareInside = phase_algorithm("top_k_share_inside", emit_share_inside);

/// Returns the address at which element 0 of the tensor would lie. `list` holds only the elements of `slice`. The
/// executor adds the position of an element to this address. The sum always lies in `list`.
float* element_zero(std::vector<float>& list, Range slice) {
  return reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(list.data()) - slice.first * sizeof(float));
}

}  // namespace

void InHostPhase::add(Job& job, std::size_t count, int slices, const float* input, std::vector<float>& sum,
                      Range slice) {
  describe(job, kAddInside, count, slices, input, element_zero(sum, slice));
}

void InHostPhase::gather(Job& job, std::size_t count, int slices, float* output) {
  describe(job, kShareInside, count, slices, output, output);
}

void InHostPhase::ask(Job& job, bool flag) {
  flag_ = flag ? 1.0F : 0.0F;
  flags_ = 0;
  describe(job, kAgreeInside, 1, 1, &flag_, &flags_);
}

void InHostPhase::describe(Job& job, const Algorithm& algorithm, std::size_t count, int parts, const float* input,
                           float* output) {
  plan_ = {};
  plan_.algorithm = &algorithm;
  plan_.segment = count;
  job = {.plan = &plan_,
         .args = {{Collective::all_reduce}, Parts::equal({0, count}, parts)},
         .op = ReduceOp::sum,
         .type = DataType::f32,
         .input = reinterpret_cast<const std::byte*>(input),
         .output = reinterpret_cast<std::byte*>(output),
         .tag = job.tag};
}

}  // namespace collectives
