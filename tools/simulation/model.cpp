// Functions for Call, the collective that is simulated, with its algorithm and its rounds. They make the Call of a
// plan, and make Calls with longer vectors or fewer rounds.
#include "tools/simulation/model.hpp"

#include <utility>

#include "planning/listed_parts.hpp"
#include "steps/schedule.hpp"

namespace collectives::simulation {

Call call_of(const Request& request, const Plan& plan, const Topology& topology, std::vector<std::size_t>& offsets) {
  Call call{.algorithm = plan.algorithm,
            .args = {{.collective = request.collective,
                      .partial_sums = plan.partial_sums,
                      .coded = plan.coded,
                      .displaced = !request.displacements.empty()},
                     Parts::equal({0, request.count}, 1),
                     request.root},
            .segment = plan.segment,
            .rounds = plan.rounds,
            .issue_interval = plan.issue_interval,
            .coding = coding_of(request, plan)};
  if (!plan.algorithm->by_part(call.args, topology)) return call;
  call.args.parts = Parts::equal({0, request.count}, topology.ranks());
  if (request.counts.empty()) return call;
  call.args.parts = listed_parts({request.counts, request.displacements}, 1, offsets);
  return call;
}

Call rounded_up(const Call& call, std::size_t unit) {
  Call longer = call;
  const Parts& parts = call.args.parts;
  longer.args.parts = Parts::equal({0, (parts.whole().count + unit - 1) / unit * unit}, parts.size());
  return longer;
}

Call shortened(const Call& call, std::size_t rounds) {
  Call shorter = call;
  const Parts& parts = call.args.parts;
  const std::size_t left_out = (call.rounds - rounds) * call.segment * index(parts.size());
  shorter.args.parts = Parts::equal({0, parts.whole().count - left_out}, parts.size());
  shorter.rounds = rounds;
  return shorter;
}

std::size_t longest_share(const Step& step, const RankView& view) {
  return host_step_work(step, view.members(step.subgroup).size()).longest;
}

}  // namespace collectives::simulation
