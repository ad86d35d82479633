// Implementation of the handshake over UCX, by which two processes make sure that both belong to one job.
//
// Each rank sends a hello to each peer. A hello contains the pair secret, a number for this sender and receiver that
// only ranks of the job can compute. If the pair secret is right, the peer answers with a welcome, which contains the
// pair secret of the opposite direction. If the pair secret is wrong, the peer answers with a refusal. Each rank waits
// until it is connected with all peers.
#include "ucx/ucx_handshake.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <new>

#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {

using namespace ucx;

UcxHandshake::UcxHandshake(UcxConnections& connections) : connections_(connections), peers_(connections.all().size()) {
  const Quiet quiet;
  for (const Connection& other : connections_.all()) {
    Peer& one = peer(other);
    one.shown = connections_.secret().pair_secret(connections_.self(), other.rank);
    for (Outgoing* out : {&one.hello, &one.welcome, &one.ready}) out->connections = &connections_;
  }
  set_greeting_handler<kHello>();
  set_greeting_handler<kWelcome>();
  set_greeting_handler<kRefusal>();
  connections_.set_handler(
      kReady,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        Header theirs;
        auto& handshake = *static_cast<UcxHandshake*>(self);
        if (const Connection* other = handshake.connections_.sender(header, header_bytes, theirs))
          handshake.peer(*other).up_there = true;
        return UCS_OK;
      },
      this);
}

/// Sets the handler for messages of kind `kKind`, which contain a pair secret. The handler drops a message without a
/// pair secret.
template <Id kKind>
void UcxHandshake::set_greeting_handler() {
  connections_.set_handler(
      kKind,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        auto& handshake = *static_cast<UcxHandshake*>(self);
        Header theirs;
        std::uint64_t shown = 0;
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 || bytes != sizeof shown) return UCS_OK;
        std::memcpy(&shown, data, sizeof shown);
        Connection* const other = handshake.connections_.claimed_sender(header, header_bytes, theirs);
        if (kKind == kHello && header_bytes == sizeof theirs) handshake.on_hello(theirs, other, shown, param);
        if (kKind == kHello || other == nullptr) return UCS_OK;
        const WireSecret& secret = handshake.connections_.secret();
        if (kKind == kWelcome && shown == secret.pair_secret(other->rank, handshake.connections_.self()))
          handshake.peer(*other).answered = true;
        // The refusing process has received the hello of this rank.
        if (kKind == kRefusal && shown == handshake.peer(*other).shown) handshake.refused_by_ = other->rank;
        return UCS_OK;
      },
      this);
}

/// Returns the ranks of other hosts whose connections satisfy the predicate `is`.
template <class Is>
std::vector<Rank> UcxHandshake::remote_ranks(Is is) {
  std::vector<Rank> ranks;
  for (const Connection& other : connections_.all())
    if (other.endpoint != nullptr && is(other)) ranks.push_back(other.rank);
  return ranks;
}

void UcxHandshake::perform(const PeerAddresses& peers) {
  for (Connection& other : connections_.all())
    if (other.endpoint != nullptr) show_secret(other, kHello, peer(other).hello, UCP_AM_SEND_FLAG_REPLY);
  while (true) {
    connections_.progress();
    for (Connection& other : connections_.all()) bring_up(other);
    const auto unmet = remote_ranks([this](const Connection& other) { return !other.up || !peer(other).up_there; });
    check(peers, unmet);
    if (unmet.empty()) return;
    connections_.wait_for_event(std::chrono::milliseconds(peers.deadline.milliseconds_left(10)));
  }
}

/// Throws an Error if the handshake has failed. `unmet`: the peers whose connections are not complete.
void UcxHandshake::check(const PeerAddresses& peers, const std::vector<Rank>& unmet) {
  const Rank self = connections_.self();
  // The bootstrap knows which rank has ended first. Other ranks may have left for this reason.
  const bool over = peers.is_over([&] { return ReportedWait::Awaited{.ranks = unmet}; });
  if (refused_by_)
    throw Error(
        Errc::bootstrap,
        fmt::format("transport ucx: rank {} refuses rank {}, whose token is not that of its job", *refused_by_, self),
        self, *refused_by_);
  const auto lost = remote_ranks([](const Connection& other) { return other.lost.has_value(); });
  if (!lost.empty())
    throw Error(
        Errc::peer_lost,
        fmt::format("transport ucx: {} cannot be reached: {}", ranks_text(lost), *connections_.at(lost.front()).lost),
        self, lost.front());
  if (!unmet.empty() && over)
    throw Error(Errc::timeout,
                fmt::format("transport ucx: no answer from {} within the time for connecting", ranks_text(unmet)), self,
                unmet.front());
}

/// Sends kReady to a peer once UCX has completed this rank's end of the connection.
void UcxHandshake::bring_up(Connection& other) {
  if (!other.heard || !peer(other).answered || other.up || other.lost) return;
  if (!connections_.flushed(other)) return;
  other.up = true;
  Outgoing& ready = peer(other).ready;
  ready.header = connections_.header();
  connections_.send(other, kReady, ready, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, UcxConnections::sent);
}

/// Sends a hello or a welcome. Its header does not contain the secret of the job.
void UcxHandshake::show_secret(Connection& to, Id id, Outgoing& out, std::uint32_t flags) {
  out.header = connections_.header();
  out.header.key = 0;
  const std::uint64_t& shown = peer(to).shown;
  connections_.send(to, id, out, &shown, sizeof shown, UCP_AM_SEND_FLAG_EAGER | flags, UcxConnections::sent);
}

/// Handles a hello. `other` is the connection to the rank that it names, or null. `shown` is its secret.
void UcxHandshake::on_hello(const Header& theirs, Connection* other, std::uint64_t shown,
                            const ucp_am_recv_param_t* param) noexcept {
  const Rank self = connections_.self();
  if (other != nullptr && shown == connections_.secret().pair_secret(other->rank, self)) {
    other->heard = true;
    Outgoing& welcome = peer(*other).welcome;
    if (!welcome.busy) show_secret(*other, kWelcome, welcome, 0);
  } else if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    // Refuses a process of another job on the reply endpoint, the only connection to that process. The refusal repeats
    // the secret of that process, which would ignore any other refusal. It names the rank that the process has sought.
    try {
      std::erase_if(refusals_, [](const Refusal& refusal) { return !refusal.busy; });
      if (refusals_.size() >= kMostRefusals) return;
      Refusal& refusal = refusals_.emplace_back();
      refusal.connections = &connections_;
      refusal.header = connections_.header();
      refusal.header.key = theirs.key;
      refusal.shown = shown;
      connections_.post(param->reply_ep, kRefusal, refusal, &refusal.shown, sizeof refusal.shown,
                        UCP_AM_SEND_FLAG_EAGER, UcxConnections::sent);
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace collectives
