// Implementation of TopKReportBuilder, which collects figures of the last top-k call of a tensor, such as the number of
// elements sent. A sparse call sends only the k elements of greatest magnitude. A dense call sends all elements.
#include "compression/top_k/top_k_report_builder.hpp"

#include <cmath>

#include "compression/top_k/vector_scan.hpp"

namespace collectives {

/// Resets the figures. Assigns the reason to the existing string, which allocates no memory if its text is no longer
/// than before.
void TopKReportBuilder::begin(const SparsePlan& plan, std::size_t dense_bytes) {
  report_.sparse = plan.sparse;
  report_.reason.assign(plan.reason);
  report_.count = plan.n;
  report_.chosen = report_.union_size = 0;
  report_.raw_bytes = dense_bytes;
  report_.sent_bytes = 0;
  report_.coding_seconds = 0;
}

void TopKReportBuilder::set_dense() noexcept {
  sent_norm_ = 0;
  report_.chosen = report_.count;
  report_.sent_bytes = report_.raw_bytes;
}

void TopKReportBuilder::set_selection(const Entries& own) {
  sent_norm_ = squared_norm({own.values, own.count});
  report_.chosen = own.count;
}

TopKReport TopKReportBuilder::report(std::uint64_t calls) const {
  TopKReport report = report_;
  report.calls = calls;
  return report;
}

TopKReport TopKReportBuilder::report_with_norms(const ResidualState& state) const {
  TopKReport with_norms = report(state.calls);
  const double residual = squared_norm(state.residual) + squared_norm(state.pending);
  with_norms.residual_norm = std::sqrt(residual);
  if (residual + sent_norm_ > 0) with_norms.relative_error = std::sqrt(residual / (residual + sent_norm_));
  return with_norms;
}

}  // namespace collectives
