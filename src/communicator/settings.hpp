// Settings of a communicator: each comes from the program, else from the environment, else it has a default.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "collectives/communicator.hpp"
#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

/// CommunicatorOptions with every default filled in.
struct Settings {
  std::string backend;
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds stall_report{};
  bool deterministic = false;
  std::optional<bool> progress_thread;
  bool device_buffers = false;
  std::string transport;               ///< empty: shared memory inside a host, a wire between hosts
  std::string wire;                    ///< empty: the best wire that all ranks have
  std::string trace, flight_recorder;  ///< COLLECTIVES_TRACE, COLLECTIVES_FLIGHT_RECORDER
  std::optional<int> dump_signal;      ///< COLLECTIVES_DUMP_SIGNAL
};

/// Returns the timeout of a call: its own, else that of the communicator.
inline std::chrono::nanoseconds timeout_of(const Options& options, const Settings& settings) noexcept {
  return options.timeout.count() != 0 ? options.timeout : settings.timeout;
}

/// Returns the settings of a communicator. Throws Error{invalid_argument}.
Settings resolve_options(const CommunicatorOptions&);
/// Returns the tuning that the program gives, else that of COLLECTIVES_TUNING. Empty if neither gives one. If the
/// program's tuning has no internal numbers, those of the file that COLLECTIVES_TUNING names apply. Throws
/// Error{invalid_argument}.
std::optional<TuningParameters> given_tuning(const CommunicatorOptions&);

}  // namespace collectives
