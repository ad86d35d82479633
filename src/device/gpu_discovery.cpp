// Implementation of GpuDiscovery, which finds the GPU of this rank. The peer information is the record that each rank
// sends to all ranks. GpuDiscovery makes the entry "gpu" of this record. From all records, each rank derives whether
// every rank has a GPU, and whether NCCL connects the GPUs. Each rank also tests whether its GPU can access the GPU
// memory of its host.
#include "device/gpu_discovery.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

/// Return true if a communicator of the given backend may use NCCL. The first function is for NCCL between all ranks,
/// the second one for NCCL inside each host.
bool uses_nccl(std::string_view backend) { return backend == "auto" || backend == "nccl"; }
bool uses_nccl_in_hosts(std::string_view backend) { return backend == "auto" || backend.starts_with("hierarchical"); }

/// Returns the reason why NCCL cannot connect the GPUs of `ranks`, or an empty text if it can. Requires that all these
/// ranks have a GPU. `allows`: one of the two functions above.
std::string agree_on_nccl(const std::vector<json>& peer_infos, std::span<const Rank> ranks,
                          bool (*allows)(std::string_view backend)) {
  const auto peer_info = [&](Rank rank) -> const json& { return peer_infos[static_cast<std::size_t>(rank)]; };
  const auto gpu = [&](Rank rank) -> const json& { return peer_info(rank).at("gpu"); };
  const Rank first = ranks.front();
  for (const Rank rank : ranks) {
    if (const auto backend = peer_info(rank).at("backend").get<std::string>(); !allows(backend))
      return fmt::format("rank {}: backend \"{}\" was asked for when the communicator was made", rank, backend);
    if (gpu(rank).at("nccl") == 0) return fmt::format("rank {}: {}", rank, gpu(rank).at("no_nccl").get<std::string>());
    if (gpu(rank).at("nccl") != gpu(first).at("nccl"))
      return fmt::format("rank {} has NCCL {}, rank {} has NCCL {}", rank, gpu(rank).at("nccl").get<int>(), first,
                         gpu(first).at("nccl").get<int>());
    for (const Rank before : ranks) {
      if (before == rank) break;
      if (gpu(before).at("identity") == gpu(rank).at("identity") && gpu(before).at("host") == gpu(rank).at("host"))
        return fmt::format(
            "ranks {} and {} are on one GPU, which NCCL refuses: make another one current for each (cudaSetDevice), or "
            "set NCCL_HOSTID differently for each, which makes hosts of them",
            before, rank);
    }
  }
  return "";
}

}  // namespace

/// Small allocation on this rank's GPU. Peers on this host use the allocation to test whether they can access memory of
/// this GPU. Ranks in other processes try to open the allocation. Ranks of the same process call PeerAccess::enable()
/// instead.
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

std::string GpuDiscovery::why_no_peer_access(const Host& host, const std::vector<json>& peer_infos) const {
  if (device_ == nullptr || host.ranks.size() == 1) return "";
  if (!environment().gpu_peers.value_or(true)) return "COLLECTIVES_GPU_PEERS is off";
  for (const Rank peer : host.ranks) {
    const json& peer_info = peer_infos[static_cast<std::size_t>(peer)];
    const json& gpu = peer_info.at("gpu");
    if (gpu.contains("missing")) continue;
    std::string why;
    if (peer_info.at("pid") == ::getpid()) {
      why = device_->peer_access().enable(gpu.at("identity").get<Device::Identity>());
    } else if (gpu.contains("not opened")) {
      why = gpu.at("not opened").get<std::string>();
    } else {
      try {
        device_->peer_access().close(device_->peer_access().open(gpu.at("opened by").get<Device::Handle>()));
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!why.empty()) return fmt::format("{} (memory of rank {})", why, peer);
  }
  return "";
}

Topology::Gpus gpus_of(const std::vector<json>& peer_infos) {
  Topology::Gpus gpus;
  const auto without =
      std::ranges::find_if(peer_infos, [](const json& peer_info) { return peer_info.at("gpu").contains("missing"); });
  gpus.everywhere = without == peer_infos.end();
  if (!gpus.everywhere)
    gpus.missing = fmt::format("rank {} has no GPU: {}", without - peer_infos.begin(),
                               without->at("gpu").at("missing").get<std::string>());
  std::vector<Rank> all(peer_infos.size());
  std::iota(all.begin(), all.end(), 0);
  gpus.no_nccl = gpus.everywhere ? agree_on_nccl(peer_infos, all, uses_nccl) : gpus.missing;
  gpus.nccl = gpus.no_nccl.empty();
  return gpus;
}

void agree_on_nccl_in_hosts(Topology& topology, const std::vector<json>& peer_infos) {
  Topology::Gpus& gpus = topology.gpus;
  if (!gpus.everywhere || gpus.peer_access || !has_multi_rank_hosts(topology)) return;
  for (const std::vector<Rank>& ranks : topology.hosts)
    if (gpus.no_nccl_in_hosts.empty()) gpus.no_nccl_in_hosts = agree_on_nccl(peer_infos, ranks, uses_nccl_in_hosts);
  gpus.nccl_in_hosts = gpus.no_nccl_in_hosts.empty();
}

}  // namespace collectives
