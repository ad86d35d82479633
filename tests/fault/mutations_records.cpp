// Targets of mutations: records that ranks exchange while they construct a communicator, and the handle of an arena.
#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/hex.hpp"
#include "base/json.hpp"
#include "bootstrap/exchange.hpp"
#include "collectives/error.hpp"
#include "core/tuning.hpp"
#include "device/gpu_discovery.hpp"
#include "fault/mutations.hpp"
#include "shared_memory/arena.hpp"
#include "topology/host_map.hpp"
#include "transport/wires.hpp"

namespace collectives::testing {
namespace {

constexpr const char* kPeerInfo =
    R"({"host":"6d8:4026:4027:4028","machine":"6d8","domain":"0","affinity":[0,1,2,3],"cores":4,"cores_set":false,)"
    R"("pid":4711,"protocol":20,"backends":"auto,ring","transport":"","wire":"","backend":"auto","deterministic":false,)"
    R"("gpu":{"missing":"off"},"context":0,"trace":"","token":"00112233445566778899aabbccddeeff"})";
constexpr const char* kPeerInfoWithGpu =
    R"({"host":"a","machine":"a","domain":"","affinity":[0],"cores":1,"cores_set":true,"pid":12,"protocol":20,)"
    R"("backends":"auto","transport":"","wire":"tcp","backend":"auto","deterministic":true,"context":3,"trace":"0f",)"
    R"("gpu":{"identity":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],"number":0,"host":"h","nccl":2,"no_nccl":"",)"
    R"("not opened":"no"}})";
constexpr const char* kPeerInfoWithOtherNccl =
    R"({"backend":"auto","gpu":{"identity":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,17],"host":"h","nccl":3}})";
constexpr const char* kFailed = R"({"error":"rank 3: no file descriptor is left","code":8})";

void throw_error_in(const JsonRecord& record) {
  if (record.has("error")) throw Error(code_in(record), error_in(record));
}

/// Reads a record as the peers of its rank do.
MutationOutcome read_peer_info(std::string_view bytes) {
  const std::vector<JsonRecord> all{record_of(0, kPeerInfo), record_of(1, bytes)};
  throw_error_in(all[1]);
  for (const char* agreed : {"protocol", "backends", "transport", "wire", "deterministic"})
    if (all[0].shown(agreed) != all[1].shown(agreed)) return MutationOutcome::dropped(agreed);
  const HostMap map(all);
  const Topology::Gpus gpus = gpus_of(all);
  return MutationOutcome::accepted(fmt::format("{} {}", map.hosts.size(), gpus.everywhere));
}

MutationOutcome read_gpus(std::string_view bytes) {
  const std::vector<JsonRecord> all{record_of(0, kPeerInfoWithGpu), record_of(1, bytes)};
  throw_error_in(all[1]);
  Topology topology = Topology::regular(2, 2);
  topology.gpus = gpus_of(all);
  agree_on_nccl_in_hosts(topology, all);
  return MutationOutcome::accepted(topology.gpus.no_nccl + topology.gpus.no_nccl_in_hosts);
}

/// Gives a record to Wires as the offer and as the outcome of another rank.
MutationOutcome read_offer(std::string_view bytes) {
  WireFactory factory{
      "fake", true, [](const std::vector<Rank>&, std::size_t, std::size_t) -> std::unique_ptr<Wire> { return nullptr; },
      std::make_shared<std::atomic<std::size_t>>(0)};
  Wires wires({.rank = 0,
               .hosts = {{0}, {1}},
               .token = "00112233445566778899aabbccddeeff",
               .frame_bytes = 64,
               .asked_for = "fake",
               .factory = factory,
               .context = 0,
               .deadline = Deadline::never(),
               .check_peers = {}},
              [&](const nlohmann::json& mine, bool) {
                return std::vector<JsonRecord>{record_of(0, json_text(mine)), record_of(1, bytes)};
              });
  wires.connect();
  return MutationOutcome::accepted();
}

MutationOutcome read_handle(std::string_view bytes) {
  static const ArenaShape shape{.ranks = 2, .frame_bytes = 64};
  Arena::join(bytes, shape, 1);
  return MutationOutcome::accepted();
}

/// Returns the handle of an arena that this process has not listed, as if another process had made it. `version` may
/// replace the version in the arena.
std::string foreign_arena(const ArenaShape& shape, std::optional<std::uint64_t> version = {}) {
  constexpr off_t kVersionAt = 8;
  const std::unique_ptr<Arena> arena = Arena::create(shape);
  const std::string handle = arena->handle();
  const std::size_t begin = handle.find(' ') + 1, end = handle.find(' ', begin);
  const int copy = ::dup(std::stoi(handle.substr(begin, end - begin)));
  if (version && ::pwrite(copy, &*version, sizeof *version, kVersionAt) != ssize_t{sizeof *version})
    throw std::runtime_error("the arena cannot be written");
  return handle.substr(0, begin) + std::to_string(copy) + handle.substr(end);
}

MutationOutcome read_tuning(std::string_view bytes) {
  std::string why;
  const nlohmann::json object = parse_json(bytes, {.most_bytes = kMostTuningBytes, .comments = true}, &why);
  if (object.is_discarded()) return MutationOutcome::refused(why);
  TuningParameters tuning;
  read_json(object, tuning, "a test");
  return MutationOutcome::accepted();
}

MutationOutcome read_hex(std::string_view bytes) {
  const auto read = from_hex(bytes);
  return !read                    ? MutationOutcome::refused("")
         : to_hex(*read) == bytes ? MutationOutcome::accepted()
                                  : MutationOutcome::dropped("other bytes");
}

}  // namespace

std::vector<MutationTarget> record_targets() {
  static const std::unique_ptr<Arena> arena = Arena::create({.ranks = 2, .frame_bytes = 64});
  return {{"peer_info", {kPeerInfo, kFailed, "{}"}, read_peer_info},
          {"gpu_info", {kPeerInfoWithGpu, kPeerInfoWithOtherNccl, kPeerInfo}, read_gpus},
          {"wire_offer",
           {R"({"wires":{"fake":"","tcp":"7b7d"},"why_not":{"ucx":"it is not here"},"fast":true})", kFailed,
            R"({"wires":{},"why_not":{"fake":"no"},"fast":false})"},
           read_offer},
          {"arena_handle",
           {arena->handle(), foreign_arena({.ranks = 2, .frame_bytes = 64}),
            foreign_arena({.ranks = 3, .frame_bytes = 64}), foreign_arena({.ranks = 2, .frame_bytes = 64}, 1),
            fmt::format("{} 0 00112233445566778899aabbccddeeff", ::getpid()), "1 3 00112233445566778899aabbccddeeff"},
           read_handle},
          {"tuning_record",
           {json_text(to_json(TuningParameters{})), R"({"inline_bytes":64,"wire_us":0.5})", R"({"notice_bytes":64})"},
           read_tuning},
          {"hex", {"7b226e6574776f726b223a2231227d"}, read_hex}};
}

}  // namespace collectives::testing
