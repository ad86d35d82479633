// Public constructor of Communicator. If tuning values (numbers by which the library chooses how to perform a call) are
// missing, it first measures them. The constructor is in the folder tuning/, because the folder communicator/ must not
// include tuning/. The measurement itself makes communicators, so tuning/ includes communicator/.
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
