// Public constructor of Communicator. It lies above communicator/, because communicators of its own measure missing
// tuning values.
#include <memory>

#include "collectives/communicator.hpp"
#include "communicator/communicator_impl.hpp"
#include "tuning/measured_tuning.hpp"

namespace collectives {
namespace {

constexpr TuningMeasurement kMeasurement{.of_machine = tuning_of_machine, .of_wire = measure_wire};

}  // namespace

Communicator::Communicator(Bootstrap& bootstrap, const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(bootstrap, options, &kMeasurement)) {}

}  // namespace collectives
