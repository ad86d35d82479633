// UcxConnections: connects this rank with all ranks of other hosts through UCX, a library for fast networks.
//
// An endpoint is UCX's object for a connection. Each message is an active message of UCX, with a Header and an Id. When
// a message arrives, UCX calls the handler that the receiving process has set for its Id. UcxHandshake
// (ucx_handshake.hpp) makes sure that both processes of a connection belong to one job. If UCX reports an error of an
// endpoint, the peer of this endpoint is marked as lost.
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
#include "transport/wire_secret.hpp"
#include "ucx/ucx_worker.hpp"

namespace collectives {
namespace ucx {

/// Kinds of active messages. The first four kinds are for the handshake. A kNews message reports which messages its
/// sender has released after reading them. A kData message holds data of collectives, and a kControl message holds a
/// short text of the control channel.
enum Id : unsigned { kHello, kWelcome, kRefusal, kReady, kData, kNews, kControl };

/// Header of every active message. Both processes have the same byte order, because UCX connects only such processes.
struct Header {
  std::uint64_t tag = 0;
  std::uint64_t key = 0;       // secret of the job; 0 before the handshake is complete
  std::uint32_t from = 0;      // sending rank
  std::uint16_t number = 0;    // number of the message; data and control messages are numbered separately
  std::uint16_t released = 0;  // rank `from` has released all messages that it received with lower numbers
};

}  // namespace ucx

class UcxConnections {
 public:
  /// Message that this rank sends. This object and the payload must stay unchanged while `busy` is set.
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
    bool up = false;                  // Whether UCX has completed this rank's end of the connection.
    bool cut = false;                 // Whether close() drops unfinished messages to and from the peer.
    std::optional<std::string> lost;  // UCX's error text once the peer is lost.
    // Whether this rank has sent nothing since the last flush (wait for delivery) began.
    bool flushed = false;
    void* pending = nullptr;  // UCX's request of that flush, until it has completed.
  };

  /// Prepares the connections to `peers`, without endpoints.
  UcxConnections(std::unique_ptr<UcxWorker> worker, const PeerAddresses& peers);
  UcxConnections(const UcxConnections&) = delete;
  UcxConnections& operator=(const UcxConnections&) = delete;

  /// Makes UCX call `callback` with `argument` for each arriving message of kind `id`.
  void set_handler(ucx::Id id, ucp_am_recv_callback_t callback, void* argument, std::uint32_t flags = 0);
  /// Makes an endpoint for each rank of another host. Requires that all handlers are set. Throws Error{bootstrap}.
  void open(const PeerAddresses& peers);
  bool is_open() const noexcept { return worker_ != nullptr; }
  /// Requires that the connections are open.
  ucp_worker_h worker() const noexcept { return worker_->get(); }
  Rank self() const noexcept { return self_; }
  Connection& at(Rank rank) { return connections_[static_cast<std::size_t>(rank)]; }
  std::vector<Connection>& all() noexcept { return connections_; }

  void progress();
  /// Sleeps until UCX has an event, at most the given time. Then calls progress().
  void wait_for_event(std::chrono::nanoseconds at_most);

  // Number of requests, the operations that UCX has begun and not completed. The code that starts a request calls
  // begin_request(). Its completion calls end_request().

  bool has_requests() const noexcept { return requests_ > 0; }
  void begin_request() noexcept { ++requests_; }
  void end_request() noexcept { --requests_; }

  /// Returns the header for a message to another rank of the job. It names this rank and the job.
  ucx::Header header() const noexcept { return {.key = key_, .from = static_cast<std::uint32_t>(self_)}; }
  /// Sends an active message. If UCX cannot complete the send at once, the message becomes busy. UCX later calls `done`
  /// with the message, and `done` must call complete(). If UCX cannot send it, the peer is lost.
  void send(Connection& to, ucx::Id, Outgoing&, const void* data, std::size_t bytes, std::uint32_t flags,
            ucp_send_nbx_callback_t done);
  /// Sends an active message like send(). The receiver need not be a peer. Returns the status of UCX.
  ucs_status_t post(ucp_ep_h to, ucx::Id, Outgoing&, const void* data, std::size_t bytes, std::uint32_t flags,
                    ucp_send_nbx_callback_t done);
  /// Marks a message as no longer busy. Takes no status of UCX, because the error handler of the endpoint reports a
  /// failed peer.
  static void complete(Outgoing& message) noexcept {
    message.connections->end_request();
    message.busy = false;
  }
  /// Calls complete() and frees the request. It is the usual `done` of send().
  static void sent(void* request, ucs_status_t, void* message);
  /// Copies an arrived header to `Header`, and returns the connection to its sender. Returns null if the sender is no
  /// peer, or does not show the secret of the job.
  Connection* sender(const void* header, std::size_t header_bytes, ucx::Header&) noexcept;
  /// Returns the connection to the rank that the header names. Any process may have sent the header.
  Connection* claimed_sender(const void* header, std::size_t header_bytes, ucx::Header&) noexcept;
  const WireSecret& secret() const noexcept { return secret_; }

  /// Notes that a peer is lost.
  void lose(Connection&, ucs_status_t) noexcept;
  /// Returns the next lost peer and the reason, the earliest first. Returns nothing while `controls`, the control
  /// channel, stores texts, because they may state why peers are lost.
  std::optional<std::pair<Rank, std::string>> take_lost(const ControlChannel& controls);

  /// Returns whether the peer's UCX has confirmed all sent messages. It confirms them only while the peer calls UCX.
  bool flushed(Connection& to);
  /// Waits at most 0.1 s until no request is left.
  void wait_for_requests();
  /// Closes all endpoints, waits at most 0.1 s until UCX has closed them, and destroys the worker.
  void close();

 private:
  void make_endpoint(Connection&, const std::string& address);
  template <class Busy>
  void wait_while(Busy busy);

  std::unique_ptr<UcxWorker> worker_;  // Null once the connections are closed.
  Rank self_;
  const WireSecret secret_;
  const std::uint64_t key_;
  std::vector<Connection> connections_;
  int requests_ = 0;       // Number of requests that UCX has not completed.
  std::deque<Rank> lost_;  // Lost peers that take_lost() has not returned yet.
};

}  // namespace collectives
