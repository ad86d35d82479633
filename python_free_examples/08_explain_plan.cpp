// Plans calls for a cluster that need not exist. A plan is the algorithm and protocol that the library chooses for a
// call. The plan depends only on the arguments of choose_plan(). 08_explain_plan
#include <collectives/collectives.hpp>
#include <cstdio>

int main() {
  const auto cluster = collectives::Topology::regular(64, 8);  // 64 ranks, 8 to a host
  const collectives::Tuning tuning;                            // default costs of messages, copies and so on

  for (const std::size_t count : {std::size_t{16}, std::size_t{16} << 20}) {
    collectives::Request request;
    request.collective = collectives::Collective::all_reduce;
    request.count = count;
    request.type = collectives::DataType::f32;

    const collectives::Plan plan = collectives::choose_plan(request, cluster, tuning);
    std::printf("%s\n", collectives::explain(plan, request, cluster).c_str());
    if (plan.estimate.microseconds <= 0) return 1;

    request.backend = "ring";  // the library never replaces a backend that is named
    if (collectives::choose_plan(request, cluster, tuning).backend != "ring") return 1;
  }
}
