// Where a training step's time goes when nothing is communicated.
#pragma once

#include <cstddef>

#include "dataset.hpp"
#include "model.hpp"
#include "optimizer.hpp"

namespace mnist {

/// Times whole steps (pick a batch, forward, loss, backward, update) of `batch` images on this thread and, in turns
/// with them, each oneDNN call of the step alone, over and over. Prints the medians and the ratio of the step to the
/// sum of its calls on stdout. Takes about `seconds`. Returns the ratio.
double profile_step(Model& model, Optimizer& optimizer, float rate, const Dataset& data, std::size_t batch,
                    double seconds);

}  // namespace mnist
