// What will be done and why: a pure function of what is equal on every rank, and a value that can be printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/export.hpp"
#include "collectives/topology.hpp"
#include "collectives/types.hpp"

namespace collectives {

class Codec;

/// Where contributions may become sums on their way to the result.
enum class PartialSums : std::uint8_t {
  allowed,     ///< partial sums travel
  intra_host,  ///< inside a host; the sums of hosts meet unsummed at an owner, who adds them in host order
  forbidden    ///< nowhere: all contributions meet unsummed at an owner, who adds them in rank order
};

/// What is asked. Holds nothing that may differ between ranks: no rank, no pointer, no time.
struct Request {
  Collective collective = Collective::all_reduce;
  /// Elements of the whole vector: of the input for all_reduce, reduce_scatter, broadcast and reduce, of the output for
  /// all_gather.
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = {};
  Rank root = 0;
  bool deterministic = false;
  /// "auto", or the backend or algorithm that is forced.
  std::string_view backend = "auto";
  /// The parts of a v-variant, one count per rank; empty for equal parts.
  std::vector<std::size_t> counts = {};
  const Codec* codec = nullptr;  ///< what values travel as between ranks that share no memory; null: as they are
  bool force = false;            ///< coded even where that is slower
  Memory memory = Memory::host;  ///< whose the buffers are
  bool operator==(const Request&) const = default;
};

/// The numbers that selection and the cost model use. Rank 0's are broadcast, so that all ranks agree. Where neither
/// the program nor COLLECTIVES_TUNING gives them, some are measured at the first use on a machine and kept in a file.
struct Tuning {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  // Where one protocol of an intra-host collective gives way to another, in bytes of the whole vector unless said
  // otherwise.
  std::size_t inline_bytes = 1024;  ///< inside the polled cache lines up to here, of what one rank shows to all others
                                    ///< together; half of it where all show and all want all
  std::size_t one_shot_bytes = 64 << 10;      ///< all-reduce of two ranks: everybody shows everything, up to here
  std::size_t one_shot_bytes_of_many = 8192;  ///< of more ranks: up to here over their number less one
  std::size_t one_shot_bytes_oversubscribed = 96 << 10;  ///< likewise of 4 and more that are more than cores
  std::size_t zero_copy_bytes = 2048;  ///< straight between buffers from here on, if all of them are mapped
  std::size_t zero_copy_bytes_oversubscribed = 256 << 10;  ///< likewise what is only copied, by more ranks than cores
  std::size_t single_copy_bytes = kNever;  ///< gathers and broadcasts by the kernel's own copy from here on, of two
                                           ///< ranks' vector; of more ranks' where parts are as long
  std::size_t single_copy_reduce_bytes = kNever;  ///< reductions likewise
  std::size_t streaming_bytes = 16 << 20;         ///< past the caches from here on, of all inputs and outputs of
                                                  ///< the ranks of a host
  std::size_t streamed_staging_bytes = kNever;    ///< what is staged goes past the caches from here on, of the whole
                                                  ///< vector: it pays where ranks have no cache in common

  std::size_t signal_bytes = 512;         ///< so many bytes are copied while a rank gives another notice of a chunk
  std::size_t chunk_bytes = 64 << 10;     ///< staging per rank and chunk of an intra-host collective
  std::size_t frame_bytes = 64 << 10;     ///< the largest message, but for wire_frame_bytes
  double host_latency_us = 0.2;           ///< one meeting of the ranks of a host
  double host_us_per_byte = 1.0 / 10e3;   ///< intra-host collective, per byte of the vector and rank
  double domain_us = 0.3;                 ///< and more where it crosses sockets or caches
  double domain_us_per_byte = 1.0 / 8e3;  ///< more for each byte that does
  double message_us = 0.5;                ///< one message inside a host
  double message_us_per_byte = 1.0 / 8e3;
  std::size_t wire_frame_bytes = 512 << 10;  ///< likewise where all that a plan sends goes to other hosts
  double wire_us = 15.0;                     ///< a short message is on its way from one host to another
  double wire_message_us = 3.0;              ///< and what a rank does itself for each message that it sends or takes
  double wire_work_us_per_byte = 1.0 / 5e3;  ///< what a rank itself has to do for each byte that it sends or takes
  double wire_us_per_byte = 1.0 / 1.1e3;     ///< on the link of a host, which its ranks share
  double wire_together_us_per_byte = 0;  ///< likewise, while the links of all hosts are busy in both directions, where
                                         ///< switches or cores are too few for all of them; 0: they are not
  std::size_t wire_frames = 8;  ///< messages between two ranks of different hosts that may be on their way at once, at
                                ///< most; what the transport allows, if that is less
  double reduce_us_per_byte = 1.0 / 12e3;  ///< arithmetic, per byte of each source
  double coding_us_per_byte = 1.0 / 12e3;  ///< encoding or decoding, per byte of the values

  std::string source = "built-in";  ///< where the numbers come from, in words
  bool operator==(const Tuning&) const = default;
};

struct Algorithm;  // a row of the table in src/planning/algorithm_table.cpp

/// The cost of one candidate, counted from its own Steps for the busiest rank.
struct Estimate {
  std::string_view algorithm;
  double microseconds = 0;
  std::size_t messages = 0;             ///< sent by the busiest rank
  std::size_t bytes_sent = 0;           ///< by the busiest rank, inside and between hosts
  std::size_t bytes_between_hosts = 0;  ///< by the busiest host
};

/// How what is in a GPU's memory is combined.
enum class DevicePath : std::uint8_t {
  host,        ///< there is nothing of a GPU's
  host_copy,   ///< through pinned memory of the host, where the plan is performed
  kernels,     ///< by one kernel of each rank, which reaches into the memory of the others
  nccl,        ///< by NCCL, in a stream
  top_k,       ///< what is largest is chosen on the GPU, exchanged by the host, and added up on the GPU
  multi_host,  ///< by kernels inside each host, and along the plan's rails through pinned memory
  steps        ///< as the plan says, by GPUs in place of the hosts
};
inline constexpr std::size_t kDevicePaths = 7;
COLLECTIVES_EXPORT std::string_view to_string(DevicePath) noexcept;

struct Plan {
  DevicePath device_path = DevicePath::host;
  std::string device_path_reason;  ///< why that one; empty for the host's memory
  const Algorithm* algorithm = nullptr;
  std::string_view backend;  ///< "ring"
  std::string_view name;     ///< "ring", "reduce_to_one_tree": a backend may have several algorithms
  /// Of the intra-host collective: "inline", "one-shot", "staged", "single-copy"; empty where there is none.
  std::string_view protocol;
  std::string protocol_reason;  ///< why that one
  bool zero_copy = false;       ///< in place of that protocol where every rank's buffers are mapped (see allocate())
  PartialSums partial_sums = PartialSums::allowed;
  bool coded = false;                ///< messages hold what the request's codec makes of the values
  std::string codec_reason;          ///< why, or why not; empty where no codec was asked for
  std::size_t segment = 0;           ///< elements of one part in one round
  std::size_t rounds = 1;            ///< the steps are performed once per round
  std::size_t issue_interval = 1;    ///< ticks between the beginnings of two rounds; a round lasts depth + 1 ticks
  std::size_t rounds_in_flight = 1;  ///< rounds under way at once
  std::string reason;                ///< why this one
  std::string tuning_source;         ///< where the numbers come from that decided
  Estimate estimate;
  std::vector<Estimate> runners_up;
};

/// Pure: equal arguments give equal plans, on every rank and in every test.
/// Throws Error{invalid_argument} for an unknown backend (listing the known ones), Error{unsupported} when a forced one
/// cannot do what is asked.
COLLECTIVES_EXPORT Plan choose_plan(const Request&, const Topology&, const Tuning&);

/// A few lines for people: the choice, its shape, its estimate, the runners-up.
COLLECTIVES_EXPORT std::string explain(const Plan&, const Request&, const Topology&);

/// The names that `backend` takes, "auto" first.
COLLECTIVES_EXPORT std::vector<std::string_view> backend_names();

}  // namespace collectives
