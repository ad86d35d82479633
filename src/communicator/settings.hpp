// What a communicator is made with: what the program says, else the environment, else the default.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "collectives/communicator.hpp"
#include "collectives/plan.hpp"

namespace collectives {

/// A CommunicatorOptions with every default filled in.
struct Settings {
  std::string backend;
  std::chrono::nanoseconds timeout{};
  std::chrono::nanoseconds stall_report{};
  bool deterministic = false;
  std::optional<bool> progress_thread;
  bool device_buffers = false;
  std::string transport;               ///< empty: shared memory inside a host, a wire between hosts
  std::string wire;                    ///< empty: the best that all ranks have
  std::string trace, flight_recorder;  ///< COLLECTIVES_TRACE, COLLECTIVES_FLIGHT_RECORDER
  std::optional<int> dump_signal;      ///< COLLECTIVES_DUMP_SIGNAL
};

/// Throws Error{invalid_argument}.
Settings resolve_options(const CommunicatorOptions&);
/// What the program says, else COLLECTIVES_TUNING; empty where neither says anything. Throws Error{invalid_argument}.
std::optional<Tuning> given_tuning(const CommunicatorOptions&);

}  // namespace collectives
