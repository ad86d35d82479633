// Implementation of GpuDiscovery, which finds the GPU of this rank while a communicator is constructed.
//
// During the construction, each rank sends its peer information, a record, to all ranks. GpuDiscovery writes the entry
// "gpu" of this record, which describes the rank's GPU. From the records of all ranks, each rank finds out whether
// every rank has a GPU, and whether the NCCL library can connect the GPUs. Each rank then tests whether its GPU can
// access the memory of the other GPUs of its host.
#include "device/gpu_discovery.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string_view>

#include "base/environment.hpp"
#include "collectives/error.hpp"
#include "device/loader.hpp"
#include "planning/device_path_choice.hpp"

namespace collectives {

using nlohmann::json;

namespace {

// The next two functions return whether a communicator with the given backend may use NCCL. The first function is for
// NCCL between all ranks, and the second one for NCCL inside each host.
bool uses_nccl(std::string_view backend) { return backend == "auto" || backend == "nccl"; }
bool uses_nccl_in_hosts(std::string_view backend) { return backend == "auto" || backend.starts_with("hierarchical"); }

/// Returns the bytes that a field of a record lists. Requires that their number is the length of the array `Bytes`.
template <class Bytes>
Bytes bytes_of(const JsonRecord& gpu, std::string_view name) {
  Bytes bytes{};
  const std::vector<int> all = gpu.integers(name, 0, UINT8_MAX, bytes.size());
  if (all.size() != bytes.size())
    gpu.refuse(fmt::format("\"{}\" has {} bytes in place of {}", name, all.size(), bytes.size()));
  std::ranges::transform(all, bytes.begin(), [](int byte) { return static_cast<std::uint8_t>(byte); });
  return bytes;
}

/// Returns the reason why NCCL cannot connect the GPUs of `ranks`, or an empty text if it can. Requires that all these
/// ranks have a GPU. `allows`: one of the two functions above.
std::string agree_on_nccl(const std::vector<JsonRecord>& peer_infos, std::span<const Rank> ranks,
                          bool (*allows)(std::string_view backend)) {
  const auto peer_info = [&](Rank rank) -> const JsonRecord& { return peer_infos[static_cast<std::size_t>(rank)]; };
  const auto gpu = [&](Rank rank) { return peer_info(rank).object("gpu"); };
  const auto nccl = [&](Rank rank) { return gpu(rank).integer("nccl", 0, INT_MAX); };
  const Rank first = ranks.front();
  std::map<std::string, Rank> owners;  // first rank of each GPU
  for (const Rank rank : ranks) {
    if (const std::string backend = peer_info(rank).text("backend"); !allows(backend))
      return fmt::format("rank {}: backend \"{}\" was asked for when the communicator was made", rank, backend);
    if (nccl(rank) == 0) return fmt::format("rank {}: {}", rank, gpu(rank).text("no_nccl"));
    if (nccl(rank) != nccl(first))
      return fmt::format("rank {} has NCCL {}, rank {} has NCCL {}", rank, nccl(rank), first, nccl(first));
    const std::string identity =
        fmt::format("{}", fmt::join(bytes_of<Device::Identity>(gpu(rank), "identity"), " ")) + gpu(rank).text("host");
    const auto [owner, is_first] = owners.emplace(identity, rank);
    if (!is_first)
      return fmt::format(
          "ranks {} and {} are on one GPU, which NCCL refuses: make another one current for each (cudaSetDevice), or "
          "set NCCL_HOSTID differently for each, which makes hosts of them",
          owner->second, rank);
  }
  return "";
}

}  // namespace

/// Small allocation on this rank's GPU. With it, the other ranks of the host test whether they can access memory of
/// this GPU. Ranks in other processes try to open the allocation. Ranks in the same process try to enable peer access
/// between the two GPUs instead.
class GpuDiscovery::PeerAccessProbe {
 public:
  explicit PeerAccessProbe(Device& device) : device_(device) {
    try {
      memory_ = device.allocate(256);
      handle_ = device.peer_access().share(memory_);
    } catch (const Error& error) {
      refused_ = error.what();
    }
  }
  ~PeerAccessProbe() {
    if (memory_ != nullptr) device_.free(memory_);
  }
  PeerAccessProbe(const PeerAccessProbe&) = delete;
  PeerAccessProbe& operator=(const PeerAccessProbe&) = delete;

  void add_to(json& peer_info) const {
    if (refused_.empty())
      peer_info["opened by"] = handle_;
    else
      peer_info["not opened"] = refused_;
  }

 private:
  Device& device_;
  void* memory_ = nullptr;
  Device::Handle handle_{};
  std::string refused_;
};

GpuDiscovery::GpuDiscovery(Rank rank, bool wanted, bool required)
    : no_device("device_buffers is off, as it is by default in a process that has not used CUDA yet") {
  if (!wanted) return;
  device_ = find_device(no_device);
  if (device_ == nullptr && required)
    throw Error(Errc::unsupported, fmt::format("rank {}: device_buffers is on, and {}", rank, no_device), rank, rank,
                "construction");
  if (device_ != nullptr) peer_access_probe_ = std::make_unique<PeerAccessProbe>(*device_);
}

GpuDiscovery::~GpuDiscovery() = default;

std::unique_ptr<Device> GpuDiscovery::release_device() {
  peer_access_probe_.reset();
  return std::move(device_);
}

json GpuDiscovery::peer_info(std::string_view backend) {
  if (device_ == nullptr) return {{"missing", no_device}};
  std::string no_nccl;
  if (uses_nccl(backend) || uses_nccl_in_hosts(backend)) nccl = device_->nccl(no_nccl);
  json peer_info{{"identity", device_->identity()},
                 {"number", device_->number()},
                 {"host", nccl_host()},
                 {"nccl", nccl == nullptr ? 0 : nccl->major()},
                 {"no_nccl", no_nccl}};
  peer_access_probe_->add_to(peer_info);
  return peer_info;
}

std::string GpuDiscovery::why_no_peer_access(const Host& host, const std::vector<JsonRecord>& peer_infos) const {
  if (device_ == nullptr || host.ranks.size() == 1) return "";
  if (!environment().gpu_peers.value_or(true)) return "COLLECTIVES_GPU_PEERS is off";
  for (const Rank peer : host.ranks) {
    const JsonRecord& peer_info = peer_infos[static_cast<std::size_t>(peer)];
    const JsonRecord gpu = peer_info.object("gpu");
    if (gpu.has("missing")) continue;
    std::string why;
    if (peer_info.integer("pid", 0, INT_MAX) == ::getpid()) {
      why = device_->peer_access().enable(bytes_of<Device::Identity>(gpu, "identity"));
    } else if (gpu.has("not opened")) {
      why = gpu.text("not opened");
    } else {
      try {
        device_->peer_access().close(device_->peer_access().open(bytes_of<Device::Handle>(gpu, "opened by")));
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!why.empty()) return fmt::format("{} (memory of rank {})", why, peer);
  }
  return "";
}

Topology::Gpus gpus_of(const std::vector<JsonRecord>& peer_infos) {
  Topology::Gpus gpus;
  const auto without = std::ranges::find_if(
      peer_infos, [](const JsonRecord& peer_info) { return peer_info.object("gpu").has("missing"); });
  gpus.everywhere = without == peer_infos.end();
  if (!gpus.everywhere)
    gpus.missing =
        fmt::format("rank {} has no GPU: {}", without - peer_infos.begin(), without->object("gpu").text("missing"));
  std::vector<Rank> all(peer_infos.size());
  std::iota(all.begin(), all.end(), 0);
  gpus.no_nccl = gpus.everywhere ? agree_on_nccl(peer_infos, all, uses_nccl) : gpus.missing;
  gpus.nccl = gpus.no_nccl.empty();
  return gpus;
}

void agree_on_nccl_in_hosts(Topology& topology, const std::vector<JsonRecord>& peer_infos) {
  Topology::Gpus& gpus = topology.gpus;
  if (!gpus.everywhere || gpus.peer_access || !has_multi_rank_hosts(topology)) return;
  for (const std::vector<Rank>& ranks : topology.hosts)
    if (gpus.no_nccl_in_hosts.empty()) gpus.no_nccl_in_hosts = agree_on_nccl(peer_infos, ranks, uses_nccl_in_hosts);
  gpus.nccl_in_hosts = gpus.no_nccl_in_hosts.empty();
}

}  // namespace collectives
