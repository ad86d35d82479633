// Choice of the device path of an operation: a pure function of values that are equal on all ranks.
//
// A device path is for device memory what a plan is for host memory. A path may delegate the operation to the plan for
// host memory. The path `host_copy` does so on pinned memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace collectives {

struct PathChoice {
  DevicePath device_path = DevicePath::host;
  std::string reason = {};  ///< why this path was chosen, in words
};
/// Returns the device path of a request. Throws Error{unsupported} if backend "nccl" is forced and cannot perform it.
PathChoice choose_path(const Request& request, const Topology& topology);

/// Returns whether there are several hosts, and several ranks on one of them.
bool has_multi_rank_hosts(const Topology& topology);
/// Returns why the GPUs of a host cannot reduce the values of its ranks; empty if they can. The text continues "several
/// hosts, and".
std::string why_not_reduced_in_hosts(const Topology& topology);
/// Changes the device path from host_copy to multi_host, if the plan reduces inside hosts before it uses rails and the
/// GPUs can do so.
void plan_multi_node(Plan& plan, const Request& request, const Topology& topology);

/// Returns whether the backend exchanges messages on one host.
bool passes_messages(std::string_view backend);
/// Changes the device path from host_copy to steps, if GPUs can perform the Steps of the plan. One host requires a
/// backend that exchanges messages. Several hosts require a host with several ranks.
///
/// Cuts the vector into messages of a length that suits GPUs. Messages between hosts have at most `wire_frame_bytes`.
/// The estimates remain those of the host. `longest` is the number of elements of the longest part that the rounds cut.
void plan_steps(Plan& plan, const Request& request, const Topology& topology, std::size_t longest,
                std::size_t wire_frame_bytes);

/// Returns the type in which NCCL sends the values: f16 or bf16 if such a codec was requested, otherwise the type of
/// the request.
DataType nccl_wire_type(const Request& request);
/// Replaces the plan for host memory by the properties of a call that NCCL performs.
void plan_nccl(Plan& plan, const Request& request, const Topology& topology);

}  // namespace collectives
