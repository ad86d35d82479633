// Handshake over UCX: makes sure that the process at the other end of each connection is a rank of the same job.
//
// Each rank sends a hello with its token, a secret of the job, to each peer. The peer answers with a welcome, or
// refuses a process that has another token. UCX completes a connection only while both sides call UCX. Each side sends
// the message kReady once UCX has completed its end. Each side calls UCX until it has sent its kReady and received that
// of the peer. Processes of other jobs are refused as long as the connections are open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/types.hpp"
#include "ucx/ucx_connections.hpp"

namespace collectives {

class UcxHandshake {
 public:
  /// Sets the handlers of the handshake. `connections` must outlive this object, and must be closed before this object
  /// is destroyed.
  UcxHandshake(UcxConnections& connections, std::string token);
  UcxHandshake(const UcxHandshake&) = delete;
  UcxHandshake& operator=(const UcxHandshake&) = delete;

  /// Blocks until both ends of all connections are complete. Throws Error{bootstrap} if a peer is lost or refuses this
  /// rank. Throws Error{timeout} at the deadline.
  void perform(Deadline);

 private:
  using Connection = UcxConnections::Connection;
  using Outgoing = UcxConnections::Outgoing;
  struct Peer {
    bool answered = false;  // Whether the peer's welcome has arrived.
    bool up_there = false;  // Whether the peer's kReady has arrived.
    Outgoing hello, welcome, ready;
  };

  Peer& peer(const Connection& connection) { return peers_[static_cast<std::size_t>(connection.rank)]; }
  template <class Is>
  std::vector<Rank> remote_ranks(Is is);
  void check(Deadline, const std::vector<Rank>& unmet);
  void greet(Connection&, ucx::Id, Outgoing&, std::string_view text, std::uint32_t flags);
  void bring_up(Connection&);
  void on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                const ucp_am_recv_param_t*) noexcept;
  template <ucx::Id kAnswer>
  void set_answer_handler();

  UcxConnections& connections_;
  std::string token_;
  std::vector<Peer> peers_;
  std::optional<Rank> refused_by_;
  std::list<Outgoing> refusals_;  // Refusals to processes of other jobs, as long as UCX sends them.
};

}  // namespace collectives
