// Choice of a device path, a way to perform calls on GPU memory (DevicePath, in plan.hpp). On the path `nccl`, for
// example, the NCCL library performs the call. On the path `host_copy`, the CPU performs it on a copy of the values in
// host (CPU) memory. All ranks choose the same path, because the choice depends only on values that are equal on all
// ranks.
//
// Most paths also need a plan for host memory. This is the plan that the call would have if its buffers were in host
// memory. The path `host_copy`, for example, follows this plan on its copy of the values.
//
// The function choose_device_path() chooses the path. The function fill_for_path() then adapts the plan
// (device_path_plan.hpp).
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
  std::size_t wire_frame_bytes = 0;         ///< maximum bytes of a message between hosts
};

/// Properties of the plan for host memory on which the choice depends.
struct HostSteps {
  bool in_hosts = false;          ///< whether the ranks of a host perform a part of the call in shared memory
  bool adds_in_hosts = false;     ///< whether an all-reduce adds inside each host before hosts exchange sums
  bool coded = false;             ///< whether messages are encoded
  bool sparse = false;            ///< whether top-k sends selected elements; otherwise the whole vector is sent
  bool selects_in_hosts = false;  ///< whether the ranks of a host add their values before top-k selects elements
};

/// Chosen device path, and the properties of the plan that depend on the choice.
struct DevicePathChoice {
  DevicePath device_path = DevicePath::host;
  std::string reason = {};        ///< text that explains why this path was chosen
  bool drops_codec = false;       ///< whether the plan ignores the codec, because NCCL converts the values
  std::size_t message_bytes = 0;  ///< maximum bytes of a message of the path `steps`
};

/// Returns the device path of a call. The argument `host_steps` is a function that makes the plan for host memory and
/// returns its properties. The function choose_device_path() calls it at most once. If the path is `host` or `nccl`, no
/// plan for host memory is needed, and `host_steps` is not called.
///
/// Throws Error{unsupported} if backend "nccl" is forced and cannot perform the call. Throws the errors of
/// `host_steps`.
DevicePathChoice choose_device_path(const DevicePathQuery&, const std::function<HostSteps()>& host_steps);

/// Returns whether there are several hosts, and several ranks on one of them.
bool has_multi_rank_hosts(const Topology& topology);
/// Returns whether the backend exchanges messages even between ranks of one host.
bool passes_messages(std::string_view backend);
/// Returns why GPUs cannot select the elements that top-k sends; empty if they can. If `in_hosts`, the ranks of a host
/// add their values first.
std::string why_not_chosen_on_gpu(bool in_hosts, const TopKOptions& options, const Topology& topology);
/// Returns the type in which NCCL sends the values. It is f16 or bf16 if such a codec was requested, otherwise the type
/// of the request.
DataType nccl_wire_type(const Request& request);

}  // namespace collectives
