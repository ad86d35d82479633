// Implementation of the handshake over UCX. Each rank sends a hello with the token, the secret of the job, to each
// peer. It also answers the hellos of its peers, and waits until all connections are complete.
#include "ucx/ucx_handshake.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {

using namespace ucx;

UcxHandshake::UcxHandshake(UcxConnections& connections, std::string token)
    : connections_(connections), token_(std::move(token)), peers_(connections.all().size()) {
  const Quiet quiet;
  for (Peer& one : peers_)
    for (Outgoing* out : {&one.hello, &one.welcome, &one.ready}) out->connections = &connections_;
  connections_.set_handler(
      kHello,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        static_cast<UcxHandshake*>(self)->on_hello(header, header_bytes, {static_cast<const char*>(data), bytes},
                                                   param);
        return UCS_OK;
      },
      this);
  set_answer_handler<kWelcome>();
  set_answer_handler<kRefusal>();
  set_answer_handler<kReady>();
}

/// Sets the handler of message kind kAnswer: an answer to this rank's hello, or kReady.
template <Id kAnswer>
void UcxHandshake::set_answer_handler() {
  connections_.set_handler(
      kAnswer,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        Header theirs;
        auto& handshake = *static_cast<UcxHandshake*>(self);
        if (const Connection* other = handshake.connections_.sender(header, header_bytes, theirs)) {
          if (kAnswer == kWelcome) handshake.peer(*other).answered = true;
          if (kAnswer == kReady) handshake.peer(*other).up_there = true;
          if (kAnswer == kRefusal) handshake.refused_by_ = other->rank;
        }
        return UCS_OK;
      },
      this);
}

/// Returns the ranks of other hosts for whose connection `is` is true.
template <class Is>
std::vector<Rank> UcxHandshake::remote_ranks(Is is) {
  std::vector<Rank> ranks;
  for (const Connection& other : connections_.all())
    if (other.endpoint != nullptr && is(other)) ranks.push_back(other.rank);
  return ranks;
}

void UcxHandshake::perform(Deadline deadline) {
  for (Connection& other : connections_.all())
    if (other.endpoint != nullptr) greet(other, kHello, peer(other).hello, token_, UCP_AM_SEND_FLAG_REPLY);
  while (true) {
    connections_.progress();
    for (Connection& other : connections_.all()) bring_up(other);
    const auto unmet = remote_ranks([this](const Connection& other) { return !other.up || !peer(other).up_there; });
    check(deadline, unmet);
    if (unmet.empty()) return;
    connections_.wait_for_event(std::chrono::milliseconds(deadline.milliseconds_left(10)));
  }
}

/// Throws an Error if the handshake has failed. `unmet`: the peers whose connections are not complete.
void UcxHandshake::check(Deadline deadline, const std::vector<Rank>& unmet) {
  const Rank self = connections_.self();
  if (refused_by_)
    throw Error(
        Errc::bootstrap,
        fmt::format("transport ucx: rank {} refuses rank {}, whose token is not that of its job", *refused_by_, self),
        self, *refused_by_);
  const auto lost = remote_ranks([](const Connection& other) { return other.lost.has_value(); });
  if (!lost.empty())
    throw Error(
        Errc::bootstrap,
        fmt::format("transport ucx: {} cannot be reached: {}", ranks_text(lost), *connections_.at(lost.front()).lost),
        self, lost.front());
  if (!unmet.empty() && deadline.passed())
    throw Error(Errc::timeout,
                fmt::format("transport ucx: no answer from {} within the time for connecting", ranks_text(unmet)), self,
                unmet.front());
}

/// Sends kReady to a peer once UCX has completed this rank's end of the connection.
void UcxHandshake::bring_up(Connection& other) {
  if (!other.heard || !peer(other).answered || other.up || other.lost) return;
  if (!connections_.flushed(other)) return;
  other.up = true;
  greet(other, kReady, peer(other).ready, {}, 0);
}

/// Sends a message of the handshake.
void UcxHandshake::greet(Connection& to, Id id, Outgoing& out, std::string_view text, std::uint32_t flags) {
  out.header = connections_.header();
  connections_.send(to, id, out, text.data(), text.size(), UCP_AM_SEND_FLAG_EAGER | flags, UcxConnections::sent);
}

void UcxHandshake::on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                            const ucp_am_recv_param_t* param) noexcept {
  Header theirs;
  if (header_bytes != sizeof theirs || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return;
  std::memcpy(&theirs, header, sizeof theirs);
  if (Connection* other = connections_.sender(header, header_bytes, theirs); other != nullptr && token == token_) {
    other->heard = true;
    Outgoing& welcome = peer(*other).welcome;
    if (!welcome.busy) greet(*other, kWelcome, welcome, {}, 0);
  } else if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    // Refuses a process of another job on the reply endpoint, the only connection to that process. The refusal carries
    // the key of that process, which would ignore any other key.
    try {
      std::erase_if(refusals_, [](const Outgoing& refusal) { return !refusal.busy; });
      Outgoing& refusal = refusals_.emplace_back();
      refusal.connections = &connections_;
      refusal.header = connections_.header();
      refusal.header.key = theirs.key;
      connections_.post(param->reply_ep, kRefusal, refusal, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, UcxConnections::sent);
    } catch (const std::bad_alloc&) {
    }
  }
}

}  // namespace collectives
