// Public constructor of Communicator, which may first measure missing tuning values. The measurement makes
// communicators of its own, so the folder tuning/ includes communicator/. This constructor calls the measurement, so it
// is in tuning/. The folder communicator/ must not include tuning/.
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
