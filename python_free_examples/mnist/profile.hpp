// Profile of a training step without communication: how much of its time each call takes.
#pragma once

#include <cstddef>

#include "dataset.hpp"
#include "model.hpp"
#include "optimizer.hpp"

namespace mnist {

/// Times whole steps of `batch` images on this thread: pick a batch, forward, loss, backward, update. Between two
/// steps, times each oneDNN call of a step alone. Prints the medians, and the ratio of the step to the sum of its
/// calls, on stdout. Takes about `seconds`. Returns the ratio.
double profile_step(Model& model, Optimizer& optimizer, float rate, const Dataset& data, std::size_t batch,
                    double seconds);

}  // namespace mnist
