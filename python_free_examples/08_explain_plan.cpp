// Plans a call for a machine that is not this one. A plan is the algorithm and protocol of a call. The choice of a plan
// depends only on the arguments of the function that makes it.   08_explain_plan
#include <collectives/collectives.hpp>
#include <cstdio>

int main() {
  const auto cluster = collectives::Topology::regular(64, 8);  // 64 ranks, 8 to a host
  const collectives::Tuning tuning;                            // numbers of the cost model

  for (const std::size_t count : {std::size_t{16}, std::size_t{16} << 20}) {
    collectives::Request request;
    request.collective = collectives::Collective::all_reduce;
    request.count = count;
    request.type = collectives::DataType::f32;

    const collectives::Plan plan = collectives::choose_plan(request, cluster, tuning);
    std::printf("%s\n", collectives::explain(plan, request, cluster).c_str());
    if (plan.estimate.microseconds <= 0) return 1;

    request.backend = "ring";  // a forced backend is never replaced silently
    if (collectives::choose_plan(request, cluster, tuning).backend != "ring") return 1;
  }
}
