// Handshake over UCX: makes sure that the process at the other end of each connection is a rank of the same job.
//
// Each rank sends a hello to each peer. The peer answers with a welcome, or refuses a process of another job. A hello
// and a welcome contain a pair secret, a number for this sender and receiver (wire_secret.hpp). A process of another
// job that receives a hello by mistake therefore learns no secret that other ranks accept. When both ranks have
// received the right pair secret, they put another secret into all later messages: the secret of the whole job.
//
// UCX completes a connection only while both processes call UCX. When UCX has completed the connection in a process,
// this process therefore sends the message kReady. It calls UCX until it has sent kReady to the peer and has received
// kReady from the peer. As long as the connections are open, the handlers refuse processes of other jobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "collectives/types.hpp"
#include "ucx/ucx_connections.hpp"

namespace collectives {

class UcxHandshake {
 public:
  /// Sets the handlers of the handshake. `connections` must outlive this object, and must be closed before this object
  /// is destroyed.
  explicit UcxHandshake(UcxConnections& connections);
  UcxHandshake(const UcxHandshake&) = delete;
  UcxHandshake& operator=(const UcxHandshake&) = delete;

  /// Blocks until both ends of all connections are complete. Throws Error{bootstrap} if a peer is lost or refuses this
  /// rank. Throws Error{timeout} at the deadline, and the errors of PeerAddresses::turn.
  void perform(const PeerAddresses&);

 private:
  using Connection = UcxConnections::Connection;
  using Outgoing = UcxConnections::Outgoing;
  struct Peer {
    bool answered = false;    // Whether the peer's welcome has arrived.
    bool up_there = false;    // Whether the peer's kReady has arrived.
    std::uint64_t shown = 0;  // Pair secret that this rank shows to the peer.
    Outgoing hello, welcome, ready;
  };
  struct Refusal : Outgoing {
    std::uint64_t shown = 0;  // Secret that the refused process has shown.
  };
  static constexpr std::size_t kMostRefusals = 64;  // Maximum number of refusals that UCX sends at a time.

  Peer& peer(const Connection& connection) { return peers_[static_cast<std::size_t>(connection.rank)]; }
  template <class Is>
  std::vector<Rank> remote_ranks(Is is);
  void check(const PeerAddresses&, const std::vector<Rank>& unmet);
  void show_secret(Connection&, ucx::Id, Outgoing&, std::uint32_t flags);
  void bring_up(Connection&);
  void on_hello(const ucx::Header&, Connection*, std::uint64_t shown, const ucp_am_recv_param_t*) noexcept;
  template <ucx::Id kKind>
  void set_greeting_handler();

  UcxConnections& connections_;
  std::vector<Peer> peers_;
  std::optional<Rank> refused_by_;
  std::list<Refusal> refusals_;  // Refusals to processes of other jobs, as long as UCX sends them.
};

}  // namespace collectives
