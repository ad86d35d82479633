// Which way an operation on device memory takes: a pure function of what is equal on all ranks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "collectives/plan.hpp"
#include "collectives/topology.hpp"

namespace collectives {

struct PathChoice {
  DevicePath device_path = DevicePath::host;
  std::string reason = {};  ///< in words
};
/// Throws Error{unsupported} where backend "nccl" is forced and cannot do it.
PathChoice choose_path(const Request& request, const Topology& topology);

/// Several hosts, and several ranks on one of them.
bool has_multi_rank_hosts(const Topology& topology);
/// Why the GPUs of each host do not add what its ranks have, in words that go on from "several hosts, and"; empty where
/// they can.
std::string why_not_reduced_in_hosts(const Topology& topology);
/// Where the plan adds inside hosts before it goes along rails, GPUs may do that: changes the way from staged then.
void plan_multi_node(Plan& plan, const Request& request, const Topology& topology);

/// Whether what this backend does on one host consists of messages.
bool passes_messages(std::string_view backend);
/// Where it does, and on several hosts of which some have several ranks, GPUs may perform the plan's Steps: changes the
/// way from staged then, and cuts the vector into messages as GPUs like them; between hosts, of `wire_frame_bytes` at
/// most. The estimates stay the host's. `longest`: elements of the longest part that rounds walk along.
void plan_steps(Plan& plan, const Request& request, const Topology& topology, std::size_t longest,
                std::size_t wire_frame_bytes);

/// What NCCL carries f32 values as: f16 or bf16 where such a codec is asked for; else the type of the request.
DataType wire_by_nccl(const Request& request);
/// Fills in what is done by NCCL in place of the host's plan.
void plan_by_nccl(Plan& plan, const Request& request, const Topology& topology);

}  // namespace collectives
