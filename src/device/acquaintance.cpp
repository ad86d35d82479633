#include "device/acquaintance.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "collectives/error.hpp"
#include "device/loader.hpp"
#include "environment.hpp"

namespace collectives {

using nlohmann::json;

namespace {

/// Why NCCL does not connect the GPUs of all ranks; empty where it can.
std::string agree_on_nccl(const Topology::Gpus& gpus, const std::vector<json>& cards) {
  if (!gpus.everywhere) return gpus.missing;
  const auto gpu = [&](std::size_t rank) -> const json& { return cards[rank].at("gpu"); };
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    if (gpu(rank).at("nccl") == 0) return fmt::format("rank {}: {}", rank, gpu(rank).at("no_nccl").get<std::string>());
    if (gpu(rank).at("nccl") != gpu(0).at("nccl"))
      return fmt::format("rank {} has NCCL {}, rank 0 has NCCL {}", rank, gpu(rank).at("nccl").get<int>(),
                         gpu(0).at("nccl").get<int>());
    for (std::size_t before = 0; before < rank; ++before)
      if (gpu(before).at("identity") == gpu(rank).at("identity") && gpu(before).at("host") == gpu(rank).at("host"))
        return fmt::format(
            "ranks {} and {} are on one GPU, which NCCL refuses: make another one current for each (cudaSetDevice), or "
            "set NCCL_HOSTID differently for each, which makes hosts of them",
            before, rank);
  }
  return "";
}

}  // namespace

/// A little memory of a GPU on which peers try whether they can open it.
class Acquaintance::Trial {
 public:
  explicit Trial(Device& device) : device_(device) {
    try {
      memory_ = device.allocate(256);
      handle_ = device.share(memory_);
    } catch (const Error& error) {
      refused_ = error.what();
    }
  }
  ~Trial() {
    if (memory_ != nullptr) device_.free(memory_);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  void add_to(json& card) const {
    if (refused_.empty())
      card["opened by"] = handle_;
    else
      card["not opened"] = refused_;
  }

 private:
  Device& device_;
  void* memory_ = nullptr;
  Device::Handle handle_{};
  std::string refused_;
};

Acquaintance::Acquaintance(Rank rank, bool wanted, bool required)
    : no_device("device_buffers is off, as it is by default in a process that has not used CUDA yet") {
  if (!wanted) return;
  device_ = find_device(no_device);
  if (device_ == nullptr && required)
    throw Error(Errc::unsupported, fmt::format("rank {}: device_buffers is on, and {}", rank, no_device), rank, rank,
                "construction");
  if (device_ != nullptr) trial_ = std::make_unique<Trial>(*device_);
}

Acquaintance::~Acquaintance() = default;

std::unique_ptr<Device> Acquaintance::give_device() {
  trial_.reset();
  return std::move(device_);
}

json Acquaintance::card(std::string_view backend) {
  if (device_ == nullptr) return {{"missing", no_device}};
  std::string no_nccl;
  if (backend != "auto" && backend != "nccl")
    no_nccl = fmt::format("backend \"{}\" was asked for when the communicator was made", backend);
  else
    nccl = device_->nccl(no_nccl);
  json card{{"identity", device_->identity()},
            {"number", device_->number()},
            {"host", nccl_host()},
            {"nccl", nccl == nullptr ? 0 : nccl->major()},
            {"no_nccl", no_nccl}};
  trial_->add_to(card);
  return card;
}

std::string Acquaintance::out_of_reach(const Host& host, const std::vector<json>& cards) const {
  if (device_ == nullptr) return "";
  for (const Rank peer : host.ranks) {
    const json& card = cards[static_cast<std::size_t>(peer)];
    const json& gpu = card.at("gpu");
    if (gpu.contains("missing")) continue;
    std::string why;
    if (card.at("pid") == ::getpid()) {
      why = device_->reach(gpu.at("identity").get<Device::Identity>());
    } else if (gpu.contains("not opened")) {
      why = gpu.at("not opened").get<std::string>();
    } else {
      try {
        device_->close(device_->open(gpu.at("opened by").get<Device::Handle>()));
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (!why.empty()) return fmt::format("{} (memory of rank {})", why, peer);
  }
  return "";
}

Topology::Gpus gpus_of(const std::vector<json>& cards) {
  Topology::Gpus gpus;
  const auto without = std::ranges::find_if(cards, [](const json& card) { return card.at("gpu").contains("missing"); });
  gpus.everywhere = without == cards.end();
  if (!gpus.everywhere)
    gpus.missing = fmt::format("rank {} has no GPU: {}", without - cards.begin(),
                               without->at("gpu").at("missing").get<std::string>());
  gpus.no_nccl = agree_on_nccl(gpus, cards);
  gpus.nccl = gpus.no_nccl.empty();
  return gpus;
}

}  // namespace collectives
