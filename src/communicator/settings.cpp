// Implementation of resolve_options() and given_tuning(), which find the settings and the tuning of a communicator. The
// tuning consists of the numbers from which the library estimates the times of algorithms.
//
// Each value has up to three sources. If the program has set the value in CommunicatorOptions, this value applies.
// Otherwise the value of an environment variable applies, and if there is none, a default.
#include "communicator/settings.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/environment.hpp"
#include "collectives/error.hpp"
#include "core/tuning.hpp"
#include "device/loader.hpp"

namespace collectives {

Settings resolve_options(const CommunicatorOptions& options) {
  const Environment from_environment = environment();
  Settings settings;
  settings.backend = !options.backend.empty() ? options.backend : from_environment.backend.value_or("auto");
  settings.timeout = options.timeout.count() != 0
                         ? options.timeout
                         : from_environment.timeout.value_or(std::chrono::nanoseconds(std::chrono::minutes(10)));
  settings.stall_report = options.stall_report;
  settings.deterministic = options.deterministic.value_or(from_environment.deterministic.value_or(false));
  settings.progress_thread =
      options.progress_thread.has_value() ? options.progress_thread : from_environment.progress_thread;
  settings.device_buffers = options.device_buffers.value_or(cuda_is_in_use() || settings.backend == "nccl");
  settings.transport = !options.transport.empty() ? options.transport : from_environment.transport.value_or("");
  const auto known = backend_names();
  if (std::find(known.begin(), known.end(), settings.backend) == known.end())
    throw Error(Errc::invalid_argument,
                fmt::format("unknown backend \"{}\"; known: {}", settings.backend, fmt::join(known, ", ")));
  settings.trace = from_environment.trace.value_or("");
  settings.flight_recorder = from_environment.flight_recorder.value_or("");
  settings.dump_signal = from_environment.dump_signal;
  settings.faults = options.inject.empty()
                        ? parse_faults(from_environment.inject.value_or("none"), "COLLECTIVES_INJECT")
                        : parse_faults(options.inject, "CommunicatorOptions::inject");
  settings.wire = !options.wire.empty() ? options.wire : from_environment.wire.value_or("");
  if (!settings.transport.empty() && settings.transport != "shared_memory") settings.wire = settings.transport;
  return settings;
}

std::optional<TuningParameters> given_tuning(const CommunicatorOptions& options) {
  const std::optional<std::string> said = environment().tuning;
  if (options.tuning) {
    TuningParameters tuning(*options.tuning);
    // A tuning that the program took from another communicator keeps the text that names its source.
    if (tuning.source == Tuning{}.source) tuning.source = "the program";
    if (options.tuning->machine == nullptr && said && *said != "default") {
      static_cast<MachineParameters&>(tuning) = tuning_of_file(*said);
      tuning.source += fmt::format(", and {} (COLLECTIVES_TUNING)", *said);
    }
    return tuning;
  }
  if (!said) return std::nullopt;
  TuningParameters tuning = built_in_tuning();
  if (*said != "default") tuning = tuning_of_file(*said);
  tuning.source += " (COLLECTIVES_TUNING)";
  return tuning;
}

}  // namespace collectives
