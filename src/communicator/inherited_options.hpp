// Options of a communicator that split() or create_group() makes from another communicator, its parent. An option that
// the program does not set has the value of the parent.
#pragma once

#include "collectives/communicator.hpp"
#include "communicator/communicator_resources.hpp"

namespace collectives {

/// Returns `options`, in which an option that is not set has the value of the parent.
inline CommunicatorOptions inherited_options(const CommunicatorResources& parent, const CommunicatorOptions& options) {
  CommunicatorOptions inherited = options;
  const Settings& settings = parent.settings;
  if (inherited.backend.empty()) inherited.backend = settings.backend;
  if (inherited.timeout.count() == 0) inherited.timeout = settings.timeout;
  if (!inherited.deterministic) inherited.deterministic = settings.deterministic;
  if (!inherited.progress_thread) inherited.progress_thread = settings.progress_thread;
  if (inherited.transport.empty()) inherited.transport = settings.transport;
  if (inherited.wire.empty()) inherited.wire = settings.wire;  // this wire connects the hosts of the parent already
  if (!inherited.device_buffers) inherited.device_buffers = parent.context.device != nullptr;
  if (!inherited.tuning) inherited.tuning = parent.context.public_tuning;
  if (inherited.inject.empty()) inherited.inject = "none";  // COLLECTIVES_INJECT does not apply to this communicator
  return inherited;
}

}  // namespace collectives
