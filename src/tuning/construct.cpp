// Public constructor of Communicator. Tuning values are numbers by which the library chooses how to perform a call. If
// tuning values are missing, the constructor first measures them. It is in the folder tuning/, because files in
// communicator/ must not include headers of tuning/. Reason: a measurement makes communicators, so files in tuning/
// include headers of communicator/.
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
