// Settings of a communicator, such as backend and timeout. The program's value of a setting precedes that of an
// environment variable. If neither gives a value, a default applies.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator.hpp"
#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"
#include "injection/faults.hpp"

namespace collectives {

/// Values of all settings, with defaults filled in. Exception: `progress_thread` is empty if no value is given.
struct Settings {
  std::string backend;
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds stall_report{};
  bool deterministic = false;
  std::optional<bool> progress_thread;
  bool device_buffers = false;
  std::string transport;  ///< transport for all messages; empty: shared memory in a host, `wire` between hosts
  std::string wire;       ///< transport between hosts; empty: the best one that all ranks have
  std::string trace, flight_recorder;  ///< path prefixes: COLLECTIVES_TRACE, COLLECTIVES_FLIGHT_RECORDER
  std::vector<Fault> faults;           ///< faults to cause: COLLECTIVES_INJECT
  std::optional<int> dump_signal;      ///< signal that writes the flight recorder: COLLECTIVES_DUMP_SIGNAL
};

/// Returns the timeout of a call: that of its options, or else that of the communicator.
inline std::chrono::nanoseconds timeout_of(const Options& options, const Settings& settings) noexcept {
  return options.timeout.count() != 0 ? options.timeout : settings.timeout;
}

/// Returns the settings of a communicator. Throws Error{invalid_argument} if a setting is invalid.
Settings resolve_options(const CommunicatorOptions&);
/// Returns the tuning that the program gives, or else that of COLLECTIVES_TUNING. Empty if neither gives one. A Tuning
/// that the program makes itself lacks the internal numbers. These numbers come from the file that COLLECTIVES_TUNING
/// names, or else are built in. Throws Error{invalid_argument} if that file is invalid.
std::optional<TuningParameters> given_tuning(const CommunicatorOptions&);

}  // namespace collectives
