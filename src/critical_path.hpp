// How long one round takes when only latency counts: the longest chain of messages and meetings through all ranks. A
// rank of a tree does little, but waits for those who wait for others; adding up what each rank does itself does not
// show that.
#pragma once

#include <optional>

#include "algorithm.hpp"
#include "collectives/plan.hpp"

namespace collectives {

/// In microseconds; empty where there are too many messages to play them all: 100,000, some 20 ms.
std::optional<double> critical_path_us(const Algorithm&, const Task&, const Topology&, const Tuning&);

}  // namespace collectives
