// Program that times the library Gloo for the comparison with other libraries. Gloo sends over TCP, by the network
// interface that COMPARE_INTERFACE names, or by loopback. Gloo has two algorithms for all-reduce, `ring` and `bcube`.
// Each of them is timed as a variant.
//
// In Gloo, a reduce_scatter is an object for one buffer, and it overwrites its input. A call out of place must
// therefore first copy the input, as in any program with Gloo.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/alltoallv.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/types.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "harness.hpp"

namespace collectives::compare {
namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

class Gloo final : public Contender {
 public:
  Gloo(SyncFile& sync, Algorithm algorithm) : sync_(sync), algorithm_(algorithm) {
    // The ranks exchange addresses through files in a folder beside the sync file.
    const std::string folder = sync.path() + ".gloo";
    if (sync.rank() == 0) std::filesystem::create_directory(folder);
    sync.barrier();
    gloo::transport::tcp::attr attributes;
    if (const char* const interface = std::getenv("COMPARE_INTERFACE")) {
      attributes.iface = interface;
    } else {
      attributes.hostname = "127.0.0.1";
    }
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    context_ = std::make_shared<gloo::rendezvous::Context>(sync.rank(), sync.ranks());
    context_->connectFullMesh(store, device);
    sync.barrier();
    if (sync.rank() == 0) std::filesystem::remove_all(folder);
  }

  void all_reduce(const float* in, float* out, std::size_t count) override {
    gloo::AllreduceOptions options(context_);
    if (in != out) options.setInput(const_cast<float*>(in), count);
    options.setOutput(out, count);
    options.setAlgorithm(algorithm_);
    void (*const sum)(void*, const void*, const void*, std::size_t) = &gloo::sum<float>;
    options.setReduceFunction(sum);
    gloo::allreduce(options);
  }

  const float* reduce_scatter(const float* in, float* out, std::size_t part) override {
    if (in == out) {
      halving_doubling(out, part).run();
      return out;
    }
    const std::size_t count = part * ranks();
    if (work_.size() != count) {
      reduce_scatters_.clear();
      work_.resize(count);
    }
    std::copy_n(in, count, work_.begin());
    halving_doubling(work_.data(), part).run();
    std::copy_n(work_.begin(), part, out);
    return out;
  }

  void all_gather(const float* in, float* out, std::size_t part) override {
    gloo::AllgatherOptions options(context_);
    const auto rank = static_cast<std::size_t>(sync_.rank());
    if (in != out + rank * part) options.setInput(const_cast<float*>(in), part);
    options.setOutput(out, part * ranks());
    gloo::allgather(options);
  }

  void broadcast(float* data, std::size_t count) override {
    gloo::BroadcastOptions options(context_);
    options.setOutput(data, count);
    options.setRoot(0);
    gloo::broadcast(options);
  }

  bool offers(Operation operation, bool in_place) const override {
    // The variants differ only in all-reduce, so `bcube` offers no other collective.
    if (algorithm_ != Algorithm::RING) return operation == Operation::all_reduce;
    switch (operation) {
      case Operation::all_to_all:
      case Operation::all_to_all_v:
      case Operation::gather:
      case Operation::scatter:
      case Operation::sendrecv:
      case Operation::ping_pong: return !in_place;
      default: return Contender::offers(operation, in_place);
    }
  }

  void exchange(const Exchange& x) override {
    auto* const in = const_cast<float*>(x.in);
    switch (x.operation) {
      case Operation::all_to_all: {
        gloo::AlltoallOptions options(context_);
        options.setInput(in, x.count * x.ranks);
        options.setOutput(x.out, x.count * x.ranks);
        return gloo::alltoall(options);
      }
      case Operation::all_to_all_v: {
        const std::vector<std::int64_t> counts(x.counts.begin(), x.counts.end());
        gloo::AlltoallvOptions options(context_);
        options.setInput(in, counts);
        options.setOutput(x.out, counts);
        return gloo::alltoallv(options);
      }
      case Operation::gather: {
        gloo::GatherOptions options(context_);
        options.setInput(in, x.count);
        if (x.at_root()) options.setOutput(x.out, x.count * x.ranks);
        options.setRoot(0);
        return gloo::gather(options);
      }
      case Operation::scatter: {
        gloo::ScatterOptions options(context_);
        std::vector<float*> parts;
        for (std::size_t r = 0; x.at_root() && r < x.ranks; ++r) parts.push_back(in + r * x.count);
        if (x.at_root()) options.setInputs(parts, x.count);
        options.setOutput(x.out, x.count);
        options.setRoot(0);
        return gloo::scatter(options);
      }
      default: return exchange_message(x);
    }
  }

 private:
  static constexpr std::uint8_t kMessages = 0x40;  // number of the slots (tags) for messages only
  using ReduceScatter = gloo::ReduceScatterHalvingDoubling<float>;

  std::size_t ranks() const { return static_cast<std::size_t>(sync_.ranks()); }

  void exchange_message(const Exchange& x) {
    if (x.to() >= x.ranks) return;
    const bool both = x.operation == Operation::sendrecv, first = both || x.rank % 2 == 0;
    const std::uint64_t slot = gloo::Slot::build(kMessages, 0);
    const auto in = context_->createUnboundBuffer(const_cast<float*>(x.in), x.count * sizeof(float));
    const auto out = context_->createUnboundBuffer(x.out, x.count * sizeof(float));
    if (first) in->send(static_cast<int>(x.to()), slot);
    out->recv(static_cast<int>(x.from()), slot);
    if (first && !both) in->waitSend();
    out->waitRecv();
    if (!first) in->send(static_cast<int>(x.to()), slot);
    if (!first || both) in->waitSend();
  }

  /// Returns the object for a buffer and size. Creates it at the first call for this buffer, which is normally an
  /// untimed one. Destroys the objects for other sizes.
  ReduceScatter& halving_doubling(float* data, std::size_t part) {
    if (!reduce_scatters_.empty() && part != part_) reduce_scatters_.clear();
    part_ = part;
    std::unique_ptr<ReduceScatter>& found = reduce_scatters_[data];
    if (!found) {
      found = std::make_unique<ReduceScatter>(context_, std::vector<float*>{data}, static_cast<int>(part * ranks()),
                                              std::vector<int>(ranks(), static_cast<int>(part)));
    }
    return *found;
  }

  SyncFile& sync_;
  const Algorithm algorithm_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::map<float*, std::unique_ptr<ReduceScatter>> reduce_scatters_;
  std::size_t part_ = 0;
  std::vector<float> work_;
};

std::unique_ptr<Contender> make(SyncFile& sync, const std::string& variant) {
  if (variant != "ring" && variant != "bcube") throw BadArguments("--variant " + variant + ": known are ring, bcube");
  return std::make_unique<Gloo>(sync, variant == "ring" ? Algorithm::RING : Algorithm::BCUBE);
}

}  // namespace
}  // namespace collectives::compare

int main(int argc, char** argv) { return collectives::compare::run_contender(argc, argv, collectives::compare::make); }
