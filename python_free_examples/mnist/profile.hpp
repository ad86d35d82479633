// Profile of a training step without communication: shows how much of the time each call of oneDNN takes.
#pragma once

#include <cstddef>

#include "dataset.hpp"
#include "model.hpp"
#include "optimizer.hpp"

namespace mnist {

/// Times whole steps of `batch` images on this thread: choose images, forward pass, loss, backward pass, update. Also
/// times each oneDNN call of a step alone. Prints the medians on stdout. Also prints and returns the time of a step
/// divided by the sum of the times of its calls. Takes about `seconds` seconds.
double profile_step(Model& model, Optimizer& optimizer, float rate, const Dataset& data, std::size_t batch,
                    double seconds);

}  // namespace mnist
