// Implementation of SparseTensor, which represents one tensor whose gradients a program sends by top-k. A sparse call
// sends only the k elements of greatest magnitude. The functions check the arguments of a call, compute k, and report
// on the last call.
#include "compression/top_k/sparse_tensor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "collectives/error.hpp"

namespace collectives {

void SparseTensor::check(std::size_t count, Rank rank) const {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("all_reduce ({}): top-k: {}", name_, why), rank, kNoRank,
                "all_reduce");
  };
  const std::size_t before = residual_.state().count;
  if (operation_.busy()) refuse("another call of this name is under way");
  if (before != 0 && before != count) refuse(fmt::format("{} elements, but those before had {}", count, before));
  if (count >= kTooMany) refuse(fmt::format("{} elements are more than indices of 32 bits reach", count));
}

std::size_t SparseTensor::next_k(std::size_t count) const {
  if (options_.k > 0) return std::min(options_.k, count);
  const std::uint64_t calls = residual_.state().calls;
  double density = options_.density;
  if (calls < options_.warm_up_calls)
    density =
        options_.warm_up_density * std::pow(options_.density / options_.warm_up_density,
                                            static_cast<double>(calls) / static_cast<double>(options_.warm_up_calls));
  return std::min(count, static_cast<std::size_t>(std::ceil(density * static_cast<double>(count) * (1 - 1e-12))));
}

TopKReport SparseTensor::report(bool norms) const {
  const TopKReportBuilder& builder = operation_.report();
  if (!norms) return builder.report(residual_.state().calls);
  if (residual_.on_device() == nullptr) return builder.report_with_norms(residual_.state());
  return builder.report_with_norms(residual_.full_state());
}

}  // namespace collectives
