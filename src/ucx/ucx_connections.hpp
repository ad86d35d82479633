// Connections of a wire over UCX to all peers: endpoints, active messages, lost peers, and closing.
//
// An endpoint is the connection of a worker of UCX to one peer. All messages are active messages of UCP. Each has a
// Header and an Id, and UCX calls the handler of that Id in the receiver.
// UcxHandshake (ucx_handshake.hpp) makes sure that the two ends of each connection belong to one job.
#pragma once

#include <ucp/api/ucp.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "transport/control_channel.hpp"
#include "transport/network.hpp"
#include "ucx/ucx_worker.hpp"

namespace collectives {
namespace ucx {

/// Numbers of the active messages.
enum Id : unsigned { kHello, kWelcome, kRefusal, kReady, kData, kNews, kControl };

/// Header of every active message. Both sides have the same byte order, because UCX's addresses require it.
struct Header {
  std::uint64_t tag = 0;
  std::uint64_t key = 0;       // Hash of the token of the job.
  std::uint32_t from = 0;      // Sending rank.
  std::uint16_t number = 0;    // Number of the message; data and control messages have separate numbers.
  std::uint16_t released = 0;  // Number of the first message that `from` has not released.
};

}  // namespace ucx

class UcxConnections {
 public:
  /// A message that this rank sends. Its memory and its payload must stay while it is busy.
  struct Outgoing {
    UcxConnections* connections = nullptr;
    ucx::Header header;
    bool busy = false;
  };
  struct Connection {
    UcxConnections* connections = nullptr;
    Rank rank = 0;
    ucp_ep_h endpoint = nullptr;      // Null for a rank of the same host.
    bool heard = false;               // Whether the peer's hello has arrived.
    bool up = false;                  // Whether this rank has connected everything.
    bool cut = false;                 // Whether close() does not wait for messages to or from the peer.
    std::optional<std::string> lost;  // How the loss of the peer was noticed; empty while it is connected.
    bool flushed = false;             // Whether nothing was sent since the last flush began.
    void* pending = nullptr;          // UCX's request of that flush.
  };

  /// Prepares the connections to `peers`.
  UcxConnections(std::unique_ptr<UcxWorker> worker, const PeerAddresses& peers);
  UcxConnections(const UcxConnections&) = delete;
  UcxConnections& operator=(const UcxConnections&) = delete;

  /// Makes UCX call `callback` with `argument` for arriving messages `id`.
  void set_handler(ucx::Id id, ucp_am_recv_callback_t callback, void* argument, std::uint32_t flags = 0);
  /// Makes an endpoint for each rank of another host, after all handlers are set. Throws Error{bootstrap}.
  void open(const PeerAddresses& peers);
  bool is_open() const noexcept { return worker_ != nullptr; }
  /// Requires that the connections are open.
  ucp_worker_h worker() const noexcept { return worker_->get(); }
  Rank self() const noexcept { return self_; }
  Connection& at(Rank rank) { return connections_[static_cast<std::size_t>(rank)]; }
  std::vector<Connection>& all() noexcept { return connections_; }

  void progress();
  /// Sleeps until an event of UCX, for at most `at_most`, then calls progress().
  void wait_for_event(std::chrono::nanoseconds at_most);

  // Requests are operations that UCX has begun and not completed.

  bool has_requests() const noexcept { return requests_ > 0; }
  void begin_request() noexcept { ++requests_; }
  void end_request() noexcept { --requests_; }

  /// Returns a header that identifies this rank, for a message between ranks of the job.
  ucx::Header header() const noexcept { return {.key = key_, .from = static_cast<std::uint32_t>(self_)}; }
  /// Sends an active message. It is busy from now on if UCX has not sent it at once. UCX then calls `done` with it,
  /// which must call complete(). A peer to which the message cannot be sent is lost.
  void send(Connection& to, ucx::Id, Outgoing&, const void* data, std::size_t bytes, std::uint32_t flags,
            ucp_send_nbx_callback_t done);
  /// Sends an active message like send(), also to a process that is no peer. Returns the status of UCX.
  ucs_status_t post(ucp_ep_h to, ucx::Id, Outgoing&, const void* data, std::size_t bytes, std::uint32_t flags,
                    ucp_send_nbx_callback_t done);
  /// Ends the request of a message that is no longer busy. Its status does not matter: the error handler of the
  /// endpoint reports a failed peer.
  static void complete(Outgoing& message) noexcept {
    message.connections->end_request();
    message.busy = false;
  }
  /// Completes a message that needs no more than that. It is a `done` of send().
  static void sent(void* request, ucs_status_t, void* message);
  /// Copies `header` and returns the connection to its sender. Returns null if it is no peer of this wire.
  Connection* sender(const void* header, std::size_t header_bytes, ucx::Header&) noexcept;

  /// Notes that a peer is lost.
  void lose(Connection&, ucs_status_t) noexcept;
  /// Returns the next lost peer and the reason, once the texts of `controls` from the peer are taken.
  std::optional<std::pair<Rank, std::string>> take_lost(const ControlChannel& controls);

  /// Returns whether the peer's UCX has all sent messages. It may confirm that only while the peer calls UCX.
  bool flushed(Connection& to);
  /// Waits up to 0.1 s for the end of all requests.
  void wait_for_requests();
  /// Closes all endpoints, waits up to 0.1 s for that, and ends the worker.
  void close();

 private:
  void make_endpoint(Connection&, const std::string& address);
  template <class Busy>
  void wait_while(Busy busy);

  std::unique_ptr<UcxWorker> worker_;  // Null once the connections are closed.
  Rank self_;
  std::uint64_t key_;
  std::vector<Connection> connections_;
  int requests_ = 0;       // Number of requests that UCX has not completed.
  std::deque<Rank> lost_;  // Failed peers that take_lost() has not returned yet.
};

}  // namespace collectives
