// A transport of one's own, here queues in memory: what a bootstrap's wire_factory() makes connects the hosts.
//
// Ranks are threads, each on a host of its own.   14_transport
#include <collectives/collectives.hpp>
#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

using namespace collectives;

struct alignas(64) Line {
  std::byte bytes[64];
};
struct Mail {
  std::vector<Line> frame;
  Message message;
};
struct Post {
  std::mutex mutex;
  std::map<std::pair<Rank, Rank>, std::deque<Mail>> mail;            // from, to
  std::map<std::pair<Rank, Rank>, std::deque<std::string>> control;  // failures, and who has arrived where
};

// Each function goes as far as it can and never waits: the library does all the waiting.
class PostWire final : public Wire {
 public:
  PostWire(Post& post, Rank self, std::size_t frame_bytes) : post_(post), self_(self), frame_bytes_(frame_bytes) {}
  std::string_view name() const noexcept override { return "post"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* stage(Rank to) override {  // memory for the next message, unless two are on their way
    const std::lock_guard lock(post_.mutex);
    if (post_.mail[{self_, to}].size() >= 2) return nullptr;
    written_[to].frame.resize((frame_bytes_ + sizeof(Line) - 1) / sizeof(Line));
    return written_[to].frame[0].bytes;
  }
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override {
    Mail& mail = written_[to];
    mail.message = {tag, mail.frame[0].bytes, bytes};
    const std::lock_guard lock(post_.mutex);
    post_.mail[{self_, to}].push_back(std::move(mail));
  }
  const Message* receive(Rank from) override {  // the oldest message, in place
    const std::lock_guard lock(post_.mutex);
    const auto& arrived = post_.mail[{from, self_}];
    return arrived.empty() ? nullptr : &arrived.front().message;
  }
  void release(Rank from) override {
    const std::lock_guard lock(post_.mutex);
    post_.mail[{from, self_}].pop_front();
  }
  void flush(Deadline) override {}
  void post_control(Rank to, std::string_view text) override {
    const std::lock_guard lock(post_.mutex);
    post_.control[{self_, to}].emplace_back(text);
  }
  std::optional<std::pair<Rank, std::string>> poll_control() override {
    const std::lock_guard lock(post_.mutex);
    for (auto& [way, texts] : post_.control) {
      if (way.second != self_ || texts.empty()) continue;
      const std::pair<Rank, std::string> oldest(way.first, texts.front());
      texts.pop_front();
      return oldest;
    }
    return std::nullopt;
  }

 private:
  Post& post_;
  Rank self_;
  std::size_t frame_bytes_;
  std::map<Rank, Mail> written_;
};

/// Meets as threads do, and brings the wire.
class PostBootstrap final : public Bootstrap {
 public:
  PostBootstrap(Bootstrap& threads, Post& post) : threads_(threads), post_(post) {}
  std::string_view name() const noexcept override { return "post"; }
  Rank rank() const noexcept override { return threads_.rank(); }
  int size() const noexcept override { return threads_.size(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return threads_.all_gather(mine, deadline);
  }
  std::string host() const override { return "host " + std::to_string(rank()); }
  WireFactory wire_factory() override {
    return {.name = "post",
            .preferred = true,
            .make = [&post = post_, self = rank()](const std::vector<Rank>& /*members*/, std::size_t /*context*/,
                                                   std::size_t frame_bytes) -> std::unique_ptr<Wire> {
              return std::make_unique<PostWire>(post, self, frame_bytes);
            },
            .next_context = std::make_shared<std::atomic<std::size_t>>(0)};
  }

 private:
  Bootstrap& threads_;
  Post& post_;
};

int main() {
  const auto threads = bootstrap_threads(3);
  Post post;
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> ranks;
    for (const auto& meeting : threads)
      ranks.emplace_back([&] {
        PostBootstrap bootstrap(*meeting, post);
        Communicator comm(bootstrap);
        std::vector<float> data(100'000, static_cast<float>(comm.rank()));
        comm.all_reduce(data);
        if (data.back() == 3 && comm.transport() == "post") ++right;  // 0 + 1 + 2
        if (comm.rank() == 0)
          std::printf("%d ranks over \"%s\", which took %llu bytes from each\n", comm.size(),
                      std::string(comm.transport()).c_str(),
                      static_cast<unsigned long long>(comm.bytes_sent_to_other_hosts()));
      });
  }
  return right == 3 ? 0 : 1;
}
