// Loader: loads libcollectives_cuda at run time. This shared library is called the component. It implements Device, the
// interface to a GPU, by CUDA.
//
// The core library is not linked to the component. One binary therefore runs with and without a GPU. The component
// contains CUDA's runtime library. Price: the runtime library makes the component one or two megabytes longer. If the
// program uses CUDA itself, the process holds the runtime library twice.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/component.hpp"
#include "device/device.hpp"

namespace collectives {

/// Returns the GPU that is current to this thread. Returns null and sets `why_not` to one line if there is none.
/// Searches for the component in `directory`, then in the system's library path. The component stays loaded.
std::unique_ptr<Device> find_device(std::string& why_not, const std::string& directory = own_directory());

/// Returns true if this process uses CUDA already, that is, if it has a context on some GPU. Loads nothing and creates
/// no context.
bool cuda_is_in_use() noexcept;
/// Returns true if CUDA's driver is loaded in this process.
bool cuda_driver_is_loaded() noexcept;

/// Replaces the component in tests. An empty function restores the component. Must be called while there is no
/// communicator, from one thread.
using DeviceMaker = std::function<std::unique_ptr<Device>(std::string& why_not)>;
void replace_devices(DeviceMaker maker);

}  // namespace collectives
