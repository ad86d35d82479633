// Choice of the device path of a call: a pure function of values that are equal on all ranks.
//
// A device path is for device memory what a plan is for host memory. A path may delegate the call to the plan for host
// memory. The path `host_copy` does so on pinned memory.
//
// choose_device_path() alone decides. The rest of the plan is then filled in for its choice (device_path_plan.hpp).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "collectives/plan.hpp"
#include "collectives/top_k.hpp"
#include "collectives/topology.hpp"

namespace collectives {

/// Values on which the choice depends.
struct DevicePathQuery {
  const Request& request;
  const Topology& topology;
  const TopKOptions* compressor = nullptr;  ///< options of top-k; null: the call has no compressor
  std::size_t wire_frame_bytes = 0;         ///< longest message between hosts
};

/// Properties of the plan for host memory on which the choice depends.
struct HostSteps {
  bool adds_in_hosts = false;     ///< whether an all-reduce adds partial sums inside hosts before it uses rails
  bool coded = false;             ///< whether messages are encoded
  bool sparse = false;            ///< whether top-k sends selected elements; otherwise the whole vector is sent
  bool selects_in_hosts = false;  ///< whether the ranks of a host add before top-k selects
};

/// A device path with what the plan needs for it.
struct DevicePathChoice {
  DevicePath device_path = DevicePath::host;
  std::string reason = {};   ///< why this path was chosen, in words
  bool drops_codec = false;  ///< whether the plan for host memory has no codec, because NCCL converts values itself
  std::size_t message_bytes = 0;  ///< longest message of the path steps
};

/// Returns the device path of a call. `host_steps` makes the plan for host memory and returns its properties. It is
/// called at most once, and only if the choice depends on it. The choices `host` and `nccl` do not.
///
/// Throws Error{unsupported} if backend "nccl" is forced and cannot perform the call. Throws the errors of
/// `host_steps`.
DevicePathChoice choose_device_path(const DevicePathQuery&, const std::function<HostSteps()>& host_steps);

/// Returns whether there are several hosts, and several ranks on one of them.
bool has_multi_rank_hosts(const Topology& topology);
/// Returns whether the backend exchanges messages on one host.
bool passes_messages(std::string_view backend);
/// Returns why GPUs cannot select from their own memory; empty if they can. `in_hosts` says whether the ranks of a host
/// add first.
std::string why_not_chosen_on_gpu(bool in_hosts, const TopKOptions& options, const Topology& topology);
/// Returns the type in which NCCL sends the values: f16 or bf16 if such a codec was requested, otherwise the type of
/// the request.
DataType nccl_wire_type(const Request& request);

}  // namespace collectives
