// Program that times the library Gloo for the comparison with other libraries. Gloo sends over TCP, on the loopback
// interface or on the one that COMPARE_INTERFACE names. The variants `ring` and `bcube` are its two algorithms for
// all-reduce.
//
// Gloo's reduce_scatter is an object that works at one address, and it overwrites its input. A call in place uses it
// directly. A call out of place first copies the input, as programs with Gloo must.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

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
    // Ranks find each other through files in a folder beside the sync file.
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

  bool offers(Operation operation, bool /*in_place*/) const override {
    // The variants differ in all-reduce only, so `bcube` offers no other collective.
    return algorithm_ == Algorithm::RING || operation == Operation::all_reduce;
  }

 private:
  using ReduceScatter = gloo::ReduceScatterHalvingDoubling<float>;

  std::size_t ranks() const { return static_cast<std::size_t>(sync_.ranks()); }

  /// Returns the object for this address. The first call with the address creates the object; without rotating
  /// buffers, that call is untimed. Objects for another size
  /// are dropped.
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
