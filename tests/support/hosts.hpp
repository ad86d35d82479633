// Several hosts in one process: ranks are threads, hosts are names, and the wire between hosts is a queue per pair of
// ranks. Traffic between hosts can thus be tested without a network, and under every sanitizer.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {

/// The messages that are under way on all wires of one test, by communicator (context), sender and receiver.
class WireMailbox {
 public:
  struct Sent {
    std::uint64_t tag;
    std::vector<std::byte> bytes;
  };
  using Key = std::tuple<std::size_t, Rank, Rank>;
  std::mutex mutex;
  std::map<Key, std::deque<Sent>> data;
  std::map<Key, std::deque<std::string>> control;
  /// Called with the bytes of every message on the wire, which it may change.
  std::function<void(Rank from, std::vector<std::byte>&)> tamper;
  /// Called with each message that a rank sends from the caller's memory.
  std::function<void(Rank from, const std::byte* data, std::size_t bytes)> lends;
};

/// Wire that is a queue in memory. It reads a message that is sent from the caller's memory only some calls of
/// progress() later, as a slow network does. Later messages wait for it.
class QueueWire final : public Wire {
 public:
  QueueWire(std::shared_ptr<WireMailbox> mailbox, std::vector<Rank> members, Rank self, std::size_t context,
            std::size_t frame_bytes)
      : mailbox_(std::move(mailbox)),
        members_(std::move(members)),
        self_(self),
        context_(context),
        frame_bytes_(frame_bytes) {
    for (std::size_t i = 0; i < members_.size(); ++i) frames_.emplace_back(frame_bytes);
    received_.resize(members_.size());
    open_.resize(members_.size());
  }
  std::string_view name() const noexcept override { return "queue"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override {
    const auto waiting = static_cast<std::size_t>(std::ranges::count(leaving_, to, &Leaving::to));
    const std::lock_guard lock(mailbox_->mutex);
    return mailbox_->data[key(self_, at(to))].size() + waiting < 2 ? frames_[index(to)].data() : nullptr;
  }
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override {
    const auto& frame = frames_[index(to)];
    leave({to, tag, bytes, nullptr, {frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(bytes)}});
  }
  void send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) override {
    if (mailbox_->lends) mailbox_->lends(self_, data, bytes);
    leave({to, tag, bytes, data, {}});
  }
  bool lent(const std::byte* data, std::size_t bytes) const noexcept override {
    return std::ranges::any_of(leaving_, [&](const Leaving& one) {
      return one.data != nullptr && one.data < data + bytes && data < one.data + one.bytes;
    });
  }
  bool sending() override { return !leaving_.empty(); }
  void progress() override {
    if (leaving_.empty() || ++looks_ % kLate != 0) return;
    put(leaving_.front());
    leaving_.pop_front();
  }
  void abandon() noexcept override { leaving_.clear(); }
  const Message* receive_into(Rank from, std::byte* place, std::size_t bytes) override {
    const Message* const message = receive(from);
    if (message == nullptr || message->bytes != bytes || bytes == 0 || place == nullptr) return message;
    if (message->data == place) return message;
    open_[index(from)].message.data = static_cast<std::byte*>(std::memcpy(place, message->data, bytes));
    return message;
  }
  const Message* receive(Rank from) override {
    Open& open = open_[index(from)];
    if (open.held) return &open.message;
    const std::lock_guard lock(mailbox_->mutex);
    auto& queue = mailbox_->data[key(at(from), self_)];
    if (queue.empty()) return nullptr;
    received_[index(from)] = std::move(queue.front());
    queue.pop_front();
    const WireMailbox::Sent& sent = received_[index(from)];
    open = {true, {sent.tag, sent.bytes.data(), sent.bytes.size()}};
    return &open.message;
  }
  void release(Rank from) override { open_[index(from)].held = false; }
  void flush(Deadline) override {}
  void post_control(Rank to, std::string_view text) override {
    const std::lock_guard lock(mailbox_->mutex);
    mailbox_->control[key(self_, at(to))].emplace_back(text);
  }
  bool control_is_thread_safe() const noexcept override { return true; }
  std::optional<std::pair<Rank, std::string>> poll_control() override {
    const std::lock_guard lock(mailbox_->mutex);
    for (std::size_t from = 0; from < members_.size(); ++from) {
      auto& queue = mailbox_->control[key(members_[from], self_)];
      if (queue.empty()) continue;
      std::pair<Rank, std::string> message(static_cast<Rank>(from), std::move(queue.front()));
      queue.pop_front();
      return message;
    }
    return std::nullopt;
  }

 private:
  struct Open {
    bool held = false;
    Message message;
  };
  /// A message under way: in the caller's memory, or in bytes of its own.
  struct Leaving {
    Rank to;
    std::uint64_t tag;
    std::size_t bytes;
    const std::byte* data;
    std::vector<std::byte> own;
  };
  static constexpr unsigned kLate = 3;
  void leave(Leaving message) {
    const bool at_once = message.data == nullptr && leaving_.empty();
    at_once ? put(message) : leaving_.push_back(std::move(message));
  }
  void put(Leaving& message) {
    if (message.data != nullptr) message.own.assign(message.data, message.data + message.bytes);
    const std::lock_guard lock(mailbox_->mutex);
    auto& sent = mailbox_->data[key(self_, at(message.to))];
    sent.push_back({message.tag, std::move(message.own)});
    if (mailbox_->tamper) mailbox_->tamper(self_, sent.back().bytes);
  }
  static std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }
  Rank at(Rank member) const { return members_[index(member)]; }
  WireMailbox::Key key(Rank from, Rank to) const { return {context_, from, to}; }

  std::shared_ptr<WireMailbox> mailbox_;
  std::vector<Rank> members_;
  Rank self_;
  std::size_t context_, frame_bytes_;
  std::vector<std::vector<std::byte>> frames_;
  std::deque<Leaving> leaving_;
  unsigned looks_ = 0;
  std::vector<WireMailbox::Sent> received_;
  std::vector<Open> open_;
};

/// Bootstrap of a rank that is a thread. The rank claims to be on a given host, and QueueWire connects the hosts.
class HostBootstrap final : public Bootstrap {
 public:
  HostBootstrap(Bootstrap& threads, std::string host, std::string domain, std::shared_ptr<WireMailbox> mailbox,
                std::shared_ptr<std::atomic<std::size_t>> next_context)
      : threads_(threads),
        host_(std::move(host)),
        domain_(std::move(domain)),
        mailbox_(std::move(mailbox)),
        next_context_(std::move(next_context)) {}
  std::string_view name() const noexcept override { return "hosts"; }
  Rank rank() const noexcept override { return threads_.rank(); }
  int size() const noexcept override { return threads_.size(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return threads_.all_gather(mine, deadline);
  }
  std::string host() const override { return host_; }
  std::string domain() const override { return domain_; }
  WireFactory wire_factory() override {
    return {"queue", true,
            [mailbox = mailbox_, self = rank()](const std::vector<Rank>& members, std::size_t context,
                                                std::size_t frame_bytes) -> std::unique_ptr<Wire> {
              return std::make_unique<QueueWire>(mailbox, members, self, context, frame_bytes);
            },
            next_context_};
  }

 private:
  Bootstrap& threads_;
  std::string host_, domain_;
  std::shared_ptr<WireMailbox> mailbox_;
  std::shared_ptr<std::atomic<std::size_t>> next_context_;
};

/// Runs ranks as threads on several hosts. hosts[r] is the number of the host of rank r. domains[r], if given, is the
/// number of its domain there.
template <class F>
void run_hosts(const std::vector<int>& hosts, F&& f, const CommunicatorOptions& options = {},
               const std::vector<int>& domains = {},
               const std::shared_ptr<WireMailbox>& mailbox = std::make_shared<WireMailbox>()) {
  run_ranks(static_cast<int>(hosts.size()), [&](Bootstrap& threads) {
    const auto self = static_cast<std::size_t>(threads.rank());
    HostBootstrap bootstrap(threads, "host " + std::to_string(hosts[self]),
                            domains.empty() ? "" : "domain " + std::to_string(domains[self]), mailbox,
                            std::make_shared<std::atomic<std::size_t>>(0));
    Communicator comm(bootstrap, options);
    f(comm);
  });
}

/// Rank that is a thread and claims to be on a host. The library connects the hosts by its own wires.
class WiredHost final : public Bootstrap {
 public:
  WiredHost(Bootstrap& threads, std::string host) : threads_(threads), host_(std::move(host)) {}
  std::string_view name() const noexcept override { return "wired hosts"; }
  Rank rank() const noexcept override { return threads_.rank(); }
  int size() const noexcept override { return threads_.size(); }
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    return threads_.all_gather(mine, deadline);
  }
  std::string host() const override { return host_; }

 private:
  Bootstrap& threads_;
  std::string host_;
};

/// Returns the hosts of ranks that are numbered host by host: {2, 3} is ranks 0-1 on host 0, ranks 2-4 on host 1.
inline std::vector<int> host_by_host(const std::vector<int>& ranks_per_host) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < ranks_per_host.size(); ++h)
    hosts.insert(hosts.end(), static_cast<std::size_t>(ranks_per_host[h]), static_cast<int>(h));
  return hosts;
}

}  // namespace collectives::testing
