#include "shared_memory/host_task.hpp"

#include <algorithm>

namespace collectives {
namespace {

HostProtocol choose(const HostTask& task, bool crowded, const Tuning& tuning) {
  if (task.kind == Step::Kind::host_barrier) return HostProtocol::lines;
  const bool gathers = !task.combines();
  const std::size_t total = task.total * task.element, shown = (gathers ? task.longest : task.total) * task.element;
  if (shown <= tuning.inline_bytes) return HostProtocol::lines;
  // With a core for each rank, both ends of a gather copy at once and the kernel's way costs one copy in place of two.
  if (gathers && !crowded && total >= tuning.single_copy_bytes) return HostProtocol::single_copy;
  // One shot reads every rank's whole vector. It saves a meeting, and with two ranks no byte more crosses between the
  // cores than otherwise; with more ranks it does, so it ends early.
  if (task.kind == Step::Kind::host_all_reduce) {
    const auto others = static_cast<std::size_t>(task.ranks() - 1);
    if (total <= (others <= 1 ? tuning.one_shot_bytes : tuning.one_shot_bytes_of_many / others))
      return HostProtocol::one_shot;
  }
  return HostProtocol::staged;
}

}  // namespace

std::string_view to_string(HostProtocol protocol) noexcept {
  switch (protocol) {
    case HostProtocol::lines: return "inline";
    case HostProtocol::one_shot: return "one-shot";
    case HostProtocol::staged: return "staged";
    case HostProtocol::single_copy: return "single-copy";
  }
  return "?";
}

void describe(const Step& step, std::size_t element_bytes, int ranks, bool crowded, const Tuning& tuning,
              HostTask& task) {
  task.kind = step.kind;
  task.only = step.only;
  task.element = element_bytes;
  task.slices.assign(static_cast<std::size_t>(ranks), Range{});
  if (step.only >= 0)
    task.slices[static_cast<std::size_t>(step.only)] = step.parts[0];
  else
    for (std::size_t local = 0; local < std::min(task.slices.size(), step.which.size()); ++local)
      task.slices[local] = step.parts[step.which[local]];
  task.total = task.longest = 0;
  task.adjacent = true;
  const Range* before = nullptr;
  for (const Range& slice : task.slices) {
    if (slice.count == 0) continue;
    task.adjacent = task.adjacent && (before == nullptr || before->first + before->count == slice.first);
    before = &slice;
    task.total += slice.count;
    task.longest = std::max(task.longest, slice.count);
  }
  task.protocol = choose(task, crowded, tuning);
}

}  // namespace collectives
