// A user-defined transport made of queues in memory. It is a wire, a transport between hosts. The ranks get the wire
// from their bootstrap, which connects ranks at the start, by its wire_factory().
//
// Ranks are threads, each on a host of its own.   14_transport
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
struct Link {  // messages on the way from one rank to another
  std::deque<Mail> mail;
  std::deque<std::string> control;  // messages of the library itself, such as a report of a failure
} links[kRanks][kRanks];
std::mutex mutex;  // protects all links

// Wire between ranks that are threads. Its functions do not wait. Each does what is possible now. The library
// calls it again.
class PostWire final : public Wire {
 public:
  PostWire(Rank self, std::size_t frame_bytes) : self_(self), frame_bytes_(frame_bytes) {}
  std::string_view name() const noexcept override { return "post"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  // Memory for the next message (a frame), or null while two are in flight.
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
  const Message* receive(Rank from) override {  // the oldest message, in place
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

// Connects ranks that are threads, and provides the wire.
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
