// Where a communicator gets its Device from: the component libcollectives_cuda, found at run time and never linked, so
// that one binary runs with a GPU and without.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/component.hpp"
#include "device/device.hpp"

namespace collectives {

/// The GPU that is current to this thread; null, and why in a line, where there is none to be had. The library is
/// looked for in `directory`, then where the system keeps libraries, and stays loaded.
std::unique_ptr<Device> find_device(std::string& why_not, const std::string& directory = own_directory());

/// Whether this process uses CUDA already: some GPU has a context of it. Loads nothing, and makes none.
bool cuda_is_in_use() noexcept;
/// Whether CUDA's driver is in the process, whoever brought it.
bool cuda_driver_is_loaded() noexcept;

/// For tests: in place of the component, until it is called with nothing. Between communicators, from one thread.
using DeviceMaker = std::function<std::unique_ptr<Device>(std::string& why_not)>;
void replace_devices(DeviceMaker maker);

}  // namespace collectives
