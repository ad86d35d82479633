// Defines a transport that consists of queues in memory. A transport moves messages between ranks. A wire is a
// transport between ranks of different hosts. A bootstrap connects the ranks at the start. The function wire_factory()
// of the bootstrap makes the wires.
//
// The ranks are threads. Each rank counts as a host of its own, so that all messages use the wire. 14_transport
#include <collectives/collectives.hpp>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

using namespace collectives;

constexpr int kRanks = 3;
struct alignas(64) Line {
  std::byte bytes[64];
};
struct Mail {
  std::vector<Line> frame;
  Message message;
};
struct Link {  // messages between two ranks that have not been received
  std::deque<Mail> mail;
  std::deque<std::string> control;  // short texts of the library itself, such as a report of a failure
} links[kRanks][kRanks];
std::mutex mutex;  // protects all links

// Wire between ranks that are threads. Its functions never wait: each does what is possible now, and the library calls
// it again later.
class PostWire final : public Wire {
 public:
  PostWire(Rank self, std::size_t frame_bytes) : self_(self), frame_bytes_(frame_bytes) {}
  std::string_view name() const noexcept override { return "post"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  // Returns memory for the next message (a frame). Returns null while two messages have not been received.
  std::byte* acquire_frame(Rank to) override {
    const std::lock_guard lock(mutex);
    acquired_[to].frame.resize(frame_bytes_ / sizeof(Line) + 1);
    return links[self_][to].mail.size() < 2 ? acquired_[to].frame[0].bytes : nullptr;
  }
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override {
    const std::lock_guard lock(mutex);
    acquired_[to].message = {tag, acquired_[to].frame[0].bytes, bytes};
    links[self_][to].mail.push_back(std::move(acquired_[to]));
  }
  const Message* receive(Rank from) override {  // returns the oldest message without a copy
    const std::lock_guard lock(mutex);
    const auto& arrived = links[from][self_].mail;
    return arrived.empty() ? nullptr : &arrived.front().message;
  }
  void release(Rank from) override {
    const std::lock_guard lock(mutex);
    links[from][self_].mail.pop_front();
  }
  void flush(Deadline) override {}
  void post_control(Rank to, std::string_view text) override {
    const std::lock_guard lock(mutex);
    links[self_][to].control.emplace_back(text);
  }
  std::optional<std::pair<Rank, std::string>> poll_control() override {
    const std::lock_guard lock(mutex);
    for (Rank from = 0; from < kRanks; ++from)
      if (auto& texts = links[from][self_].control; !texts.empty()) {
        std::pair oldest(from, std::move(texts.front()));
        texts.pop_front();
        return oldest;
      }
    return std::nullopt;
  }

 private:
  const Rank self_;
  const std::size_t frame_bytes_;
  Mail acquired_[kRanks];
};

// Bootstrap of ranks that are threads. It provides their wire.
class PostBootstrap final : public Bootstrap {
 public:
  explicit PostBootstrap(Bootstrap& threads) : threads_(threads) {}
  std::string_view name() const noexcept override { return "post"; }
  Rank rank() const noexcept override { return threads_.rank(); }
  int size() const noexcept override { return kRanks; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return threads_.all_gather(mine, deadline);
  }
  std::string host() const override { return "host " + std::to_string(rank()); }
  WireFactory wire_factory() override {
    return {.name = "post",
            .preferred = true,
            .make = [self = rank()](const auto& /*members*/, std::size_t /*context*/,
                                    std::size_t frame_bytes) { return std::make_unique<PostWire>(self, frame_bytes); },
            .next_context = std::make_shared<std::atomic<std::size_t>>(0)};
  }

 private:
  Bootstrap& threads_;
};

int main() {
  const auto threads = bootstrap_threads(kRanks);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> ranks;
    for (const auto& thread : threads)
      ranks.emplace_back([&] {
        PostBootstrap bootstrap(*thread);
        Communicator comm(bootstrap);
        std::vector<float> data(100'000, static_cast<float>(comm.rank()));
        comm.all_reduce(data);
        right += data.back() == 3 && comm.transport() == "post";  // 0 + 1 + 2
        if (comm.rank() == 0) std::puts(comm.explain(Collective::all_reduce, data.size(), DataType::f32).c_str());
      });
  }
  return right == kRanks ? 0 : 1;
}
