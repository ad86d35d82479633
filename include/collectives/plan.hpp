// Plan: states how the library performs a call, and why. A plan names the algorithm, the protocol between ranks of one
// host, and the estimated time.
//
// All ranks compute the same plan, because a plan depends only on values that are equal on all ranks. explain()
// describes a plan in words. docs/tuning.md explains the numbers by which plans are chosen. docs/algorithms.md explains
// the algorithms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/export.hpp"
#include "collectives/topology.hpp"
#include "collectives/tuning.hpp"
#include "collectives/types.hpp"

namespace collectives {

class Codec;

/// Places where the values of several ranks may be added before they are sent on.
enum class PartialSums : std::uint8_t {
  allowed,     ///< Everywhere: a rank may send the sum of several ranks' values to another rank.
  intra_host,  ///< Only inside a host. One rank, the owner of an element, adds the sums of all hosts in host order.
  forbidden    ///< Nowhere: one rank, the owner of an element, adds the values of all ranks in rank order.
};

/// Request for a plan: the arguments of a call that are equal on all ranks. A request contains neither the number of
/// the calling rank, nor a buffer, nor a timeout.
struct Request {
  Collective collective = Collective::all_reduce;
  /// Number of elements of the whole vector. The whole vector is the output of all_gather, the root's output of gather,
  /// and the input of all other collectives. 0 if only some ranks know it.
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = {};
  Rank root = 0;
  bool deterministic = false;
  /// "auto", or the backend or algorithm that is forced.
  std::string_view backend = "auto";
  /// Number of elements of each rank's part, in reduce_scatter_v and all_gather_v. Empty: equal parts.
  std::vector<std::size_t> counts = {};
  /// First element of each rank's part in these calls. Empty: the parts lie one after another.
  std::vector<std::size_t> displacements = {};
  const Codec* codec = nullptr;  ///< Codec between ranks that share no memory. Null: values are sent unchanged.
  bool force = false;            ///< True: encode even if that is slower.
  Memory memory = Memory::host;  ///< Kind of memory in which the buffers are.
  bool operator==(const Request&) const = default;
};

struct Algorithm;  // row of the table in src/planning/algorithm_table.cpp

/// Estimated cost of a call with one algorithm: time, messages and bytes.
struct Estimate {
  std::string_view algorithm;
  double microseconds = 0;
  std::size_t messages = 0;             ///< Messages that the busiest rank sends.
  std::size_t bytes_sent = 0;           ///< Bytes that the busiest rank sends, inside and between hosts.
  std::size_t bytes_between_hosts = 0;  ///< Bytes that the busiest host sends to other hosts.
};

/// Device paths, the ways in which a call on GPU memory is done (docs/gpu.md).
enum class DevicePath : std::uint8_t {
  host,        ///< The call is on CPU (host) memory.
  host_copy,   ///< Values are copied to pinned CPU memory, where the CPU performs the plan.
  kernels,     ///< One kernel per rank, which accesses the GPU memory of the other ranks.
  nccl,        ///< NCCL, in a stream.
  top_k,       ///< GPUs select the largest elements, hosts exchange them, and GPUs add them.
  multi_host,  ///< GPU kernels add inside each host; between hosts, values pass through pinned memory.
  steps        ///< GPUs perform the Steps of the algorithm; a Step is one action of a rank.
};
inline constexpr std::size_t kDevicePaths = 7;
COLLECTIVES_EXPORT std::string_view to_string(DevicePath) noexcept;

/// Plan of a call.
struct Plan {
  DevicePath device_path = DevicePath::host;
  std::string device_path_reason;  ///< Reason for `device_path`. Empty for a call on CPU memory.
  const Algorithm* algorithm = nullptr;
  std::string_view backend;  ///< Name of the backend: "ring".
  /// Name of the algorithm: "ring", "reduce_to_one_tree". A backend may have several algorithms.
  std::string_view name;
  /// Protocol of the intra-host collective: "inline", "one-shot", "staged", "single-copy". Empty if there is none.
  std::string_view protocol;
  std::string protocol_reason;  ///< Reason for the protocol.
  bool zero_copy = false;  ///< True: replaces the protocol if the buffers of all ranks are mapped (see allocate()).
  PartialSums partial_sums = PartialSums::allowed;
  bool coded = false;        ///< True: messages are encoded by the request's codec.
  std::string codec_reason;  ///< Reason for `coded`. Empty if no codec was requested.
  std::size_t segment = 0;   ///< Number of elements (of the user op, if there is one) of each part in one round.
  std::size_t rounds = 1;    ///< Number of rounds. Each round performs all Steps on one segment.
  /// Ticks from the start of a round to the start of the next. In each tick, a round performs its Steps of one depth.
  std::size_t issue_interval = 1;
  std::size_t rounds_in_flight = 1;  ///< Maximum number of rounds in flight.
  std::string reason;                ///< Reason for the algorithm.
  std::string tuning_source;         ///< Origin of the numbers that decided.
  Estimate estimate;
  std::vector<Estimate> runners_up;
};

/// Returns the plan for a request. Equal arguments give equal plans, on every rank and in every test.
///
/// Throws Error{invalid_argument} for an unknown backend. The text lists the known ones. Throws Error{unsupported} if a
/// forced backend cannot do the request.
COLLECTIVES_EXPORT Plan choose_plan(const Request&, const Topology&, const Tuning&);

/// Returns a description of a few lines: the choice, its shape, its estimate, and the runners-up.
COLLECTIVES_EXPORT std::string explain(const Plan&, const Request&, const Topology&);

/// Returns the valid names of backends and algorithms, "auto" first.
COLLECTIVES_EXPORT std::vector<std::string_view> backend_names();

}  // namespace collectives
