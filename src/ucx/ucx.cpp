// Implementation of the UCX transport, which exchanges messages with the ranks of other hosts through the UCX library.
//
// A frame is memory for one message. To send, a rank writes its data into a frame, and gives the frame to UCX. UCX
// calls a handler in the receiving process when a message arrives. When the receiver has read the message, it releases
// the message, and reports the release to the sender. At most 16 messages from one rank to another may be sent whose
// release is not reported yet.
//
// Other files connect the peers. The file ucx_connections.cpp makes the connections, and ucx_handshake.cpp checks that
// both processes of a connection belong to one job.
#include "ucx/ucx.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

// Maximum time for which abandon() and flush() wait for confirmations of peers. The time is short, because a peer
// confirms only while it calls the library.
constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

UcxNetwork::UcxNetwork() : worker_(std::make_unique<UcxWorker>()), address_(worker_->address()) {}

std::unique_ptr<Wire> UcxNetwork::connect(const PeerAddresses& peers) {
  if (!worker_) throw Error(Errc::invalid_argument, "transport ucx: this network is connected already");
  return std::make_unique<UcxTransport>(std::move(worker_), peers);
}

UcxTransport::UcxTransport(std::unique_ptr<UcxWorker> worker, const PeerAddresses& peers)
    : connections_(std::move(worker), peers),
      handshake_(connections_),
      controls_(connections_),
      frames_(peers.frame_bytes),
      peers_(peers.addresses.size()) {
  const ucx::Quiet quiet;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    peer.connection = &connections_.at(static_cast<Rank>(rank));
    const auto prepare = [&](Outgoing& out) { out.connections = &connections_, out.wire = this, out.peer = &peer; };
    for (Outgoing& out : peer.out) prepare(out);
    prepare(peer.news);
    for (Incoming& in : peer.in) in.wire = this;
  }
  connections_.set_handler(
      ucx::kData,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        return static_cast<UcxTransport*>(self)->on_data(header, header_bytes, data, bytes, param);
      },
      this, UCP_AM_FLAG_PERSISTENT_DATA);
  connections_.set_handler(
      ucx::kNews,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        ucx::Header theirs;
        auto& wire = *static_cast<UcxTransport*>(self);
        if (const Connection* from = wire.connections_.sender(header, header_bytes, theirs))
          wire.peer(from->rank).note_releases(theirs);
        return UCS_OK;
      },
      this);
  try {
    connections_.open(peers);
    handshake_.perform(peers);
  } catch (...) {
    close();
    throw;
  }
}

UcxTransport::~UcxTransport() { close(); }

// ---- sending

std::byte* UcxTransport::acquire_frame(Rank to) {
  Peer& receiver = peer(to);
  const auto free = [&] {
    return static_cast<std::uint16_t>(receiver.next_out - receiver.released_there) < kWindow &&
           !receiver.out[receiver.next_out % kWindow].busy && (receiver.acquired || receiver.frames_out < kFrames);
  };
  if (!free()) {
    connections_.progress();
    if (!free()) return nullptr;
  }
  if (!receiver.acquired) {
    receiver.acquired = frames_.take();
    if (!receiver.acquired) throw std::bad_alloc();
    ++receiver.frames_out;
  }
  return receiver.acquired.get();
}

void UcxTransport::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  hand_over(peer(to), tag, peer(to).acquired.get(), bytes, true);
}

void UcxTransport::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  hand_over(peer(to), tag, data, bytes, false);
}

void UcxTransport::hand_over(Peer& to, std::uint64_t tag, const std::byte* data, std::size_t bytes, bool from_frame) {
  Outgoing& out = to.out[to.next_out % kWindow];
  out.header = connections_.header();
  out.header.tag = tag;
  out.header.number = to.next_out++;
  out.header.released = to.next_in;
  to.released_told = to.next_in;
  to.connection->flushed = false;
  if (from_frame) out.frame = std::move(to.acquired);
  if (to.connection->lost) return finish(out);
  connections_.send(*to.connection, ucx::kData, out, data, bytes, 0, [](void* request, ucs_status_t, void* message) {
    Outgoing& done = *static_cast<Outgoing*>(static_cast<UcxConnections::Outgoing*>(message));
    UcxConnections::complete(done);
    done.wire->finish(done);
    ucp_request_free(request);
  });
  if (!out.busy) return finish(out);
  if (!from_frame) {
    out.lent = {data, bytes};
    lent_.add(data, bytes);
  }
}

/// Takes back the memory of a message that UCX has sent, or that was not sent because the peer is lost.
void UcxTransport::finish(Outgoing& out) noexcept {
  if (out.frame) {
    frames_.give(std::move(out.frame));
    --out.peer->frames_out;
  }
  if (const auto [data, bytes] = std::exchange(out.lent, {}); data != nullptr) lent_.remove(data, bytes);
}

// ---- receiving

ucs_status_t UcxTransport::on_data(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) noexcept {
  ucx::Header theirs;
  Connection* connection = connections_.sender(header, header_bytes, theirs);
  if (connection == nullptr || !connection->heard || bytes > frames_.frame_bytes() || closing_) return UCS_OK;
  Peer& from = peers_[theirs.from];
  from.note_releases(theirs);
  Incoming& in = from.in[theirs.number % kWindow];
  if (static_cast<std::uint16_t>(theirs.number - from.next_in) >= kWindow || in.state != Incoming::State::empty) {
    return UCS_OK;
  }
  in.message = {.tag = theirs.tag, .data = nullptr, .bytes = bytes};
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    in.kept = data;
    in.state = Incoming::State::announced;
    return UCS_INPROGRESS;
  }
  in.state = Incoming::State::arrived;
  if (bytes == 0) {
    alignas(UcxWorker::kAlignment) static constexpr std::byte kNothing[UcxWorker::kAlignment]{};
    in.message.data = kNothing;
    return UCS_OK;
  }
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0 &&
      reinterpret_cast<std::uintptr_t>(data) % UcxWorker::kAlignment == 0) {
    in.kept = data;
    in.message.data = static_cast<const std::byte*>(data);
    return UCS_INPROGRESS;
  }
  in.frame = frames_.take();
  if (!in.frame) {
    connections_.lose(*connection, UCS_ERR_NO_MEMORY);
    in.state = Incoming::State::fetching;  // The receiver waits for this message until it learns that the peer is lost.
    return UCS_OK;
  }
  std::memcpy(in.frame.get(), data, bytes);
  in.message.data = in.frame.get();
  return UCS_OK;
}

const Message* UcxTransport::receive_into(Rank from, std::byte* place, std::size_t bytes) {
  Peer& sender = peer(from);
  Incoming& in = sender.in[sender.next_in % kWindow];
  if (in.state == Incoming::State::arrived) return &in.message;
  if (in.state != Incoming::State::announced) connections_.progress();
  if (in.state == Incoming::State::announced) {
    fetch(sender, in, place, bytes);
    connections_.progress();
  }
  return in.state == Incoming::State::arrived ? &in.message : nullptr;
}

void UcxTransport::fetch(Peer& from, Incoming& in, std::byte* place, std::size_t bytes) {
  if (place == nullptr || bytes != in.message.bytes) {
    in.frame = frames_.take();
    if (!in.frame) throw std::bad_alloc();
    place = in.frame.get();
  }
  in.message.data = place;
  in.state = Incoming::State::fetching;
  const ucx::Quiet quiet;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* of) {
    Incoming& done = *static_cast<Incoming*>(of);
    done.wire->connections_.end_request();
    done.wire->fetched(done, status);
    ucp_request_free(request);
  };
  param.user_data = &in;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(connections_.worker(), std::exchange(in.kept, nullptr), place, in.message.bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) {
    fetched(in, UCS_PTR_RAW_STATUS(request));
    if (UCS_PTR_IS_ERR(request)) connections_.lose(*from.connection, UCS_PTR_STATUS(request));
    return;
  }
  connections_.begin_request();
  if (!in.frame) {
    in.lent = true;
    lent_.add(place, in.message.bytes);
  }
}

/// Marks the message as arrived if the fetch succeeded. A failed fetch means that the sender is lost, so the message
/// never arrives.
void UcxTransport::fetched(Incoming& in, ucs_status_t status) noexcept {
  if (std::exchange(in.lent, false)) lent_.remove(in.message.data, in.message.bytes);
  if (status == UCS_OK) in.state = Incoming::State::arrived;
}

void UcxTransport::release(Rank from) {
  Peer& sender = peer(from);
  Incoming& in = sender.in[sender.next_in % kWindow];
  if (in.kept != nullptr) ucp_am_data_release(connections_.worker(), std::exchange(in.kept, nullptr));
  frames_.give(std::move(in.frame));
  in.state = Incoming::State::empty;
  ++sender.next_in;
  send_releases(sender);
}

void UcxTransport::send_releases(Peer& to) noexcept {
  if (static_cast<std::uint16_t>(to.next_in - to.released_told) < kTellEvery || to.news.busy || to.connection->lost)
    return;
  to.news.header = connections_.header();
  to.news.header.released = to.next_in;
  to.released_told = to.next_in;
  connections_.send(*to.connection, ucx::kNews, to.news, nullptr, 0, UCP_AM_SEND_FLAG_EAGER,
                    [](void* request, ucs_status_t, void* message) {
                      Outgoing& done = *static_cast<Outgoing*>(static_cast<UcxConnections::Outgoing*>(message));
                      UcxConnections::complete(done);
                      done.wire->send_releases(*done.peer);  // Reports the releases since this message was sent.
                      ucp_request_free(request);
                    });
}

/// Stores the releases that a header reports. Ignores a report older than the last, because headers may arrive out of
/// order.
void UcxTransport::Peer::note_releases(const ucx::Header& theirs) noexcept {
  const auto ahead = static_cast<std::uint16_t>(theirs.released - released_there);
  if (ahead <= static_cast<std::uint16_t>(next_out - released_there)) released_there = theirs.released;
}

std::optional<std::pair<Rank, std::string>> UcxTransport::poll_control() {
  if (!controls_.has_texts()) controls_.read();
  return controls_.take();
}

// ---- flush and close

bool UcxTransport::Peer::has_busy_messages() const {
  return std::any_of(out.begin(), out.end(), [](const Outgoing& one) { return one.busy; });
}

void UcxTransport::flush(Deadline deadline) {
  const ucx::Quiet quiet;
  while (true) {
    connections_.progress();
    std::vector<Rank> waiting;
    for (const Peer& other : peers_) {
      const Rank rank = other.connection->rank;
      const bool busy = other.has_busy_messages() || controls_.has_unsent(rank);
      if (busy && !other.connection->lost) waiting.push_back(rank);
    }
    if (waiting.empty()) break;
    if (deadline.passed()) {
      throw Error(Errc::timeout, fmt::format("transport ucx: {} has not taken its messages", ranks_text(waiting)),
                  connections_.self(), waiting.front());
    }
    wait_for_event(std::chrono::milliseconds(1));
  }
  // UCX has handed all messages to network or kernel. The peers should confirm them, but a peer that is busy outside
  // the library does not.
  const Deadline patience = Deadline::in(kPatience);
  while (!patience.passed() && !deadline.passed()) {
    bool all = true;
    for (Connection& other : connections_.all())
      all = (other.endpoint == nullptr || other.lost || connections_.flushed(other)) && all;
    if (all) return;
    wait_for_event(std::chrono::milliseconds(1));
  }
}

void UcxTransport::abandon() noexcept {
  for (const Deadline patience = Deadline::in(kPatience); !lent_.empty() && !patience.passed();)
    wait_for_event(std::chrono::milliseconds(1));
  if (!lent_.empty()) close();
}

void UcxTransport::close() noexcept {
  if (!connections_.is_open()) return;
  const ucx::Quiet quiet;
  closing_ = true;
  for (Peer& other : peers_) {
    for (Incoming& in : other.in) {
      if (in.kept != nullptr) ucp_am_data_release(connections_.worker(), std::exchange(in.kept, nullptr));
    }
  }
  connections_.wait_for_requests();
  for (Peer& other : peers_)
    other.connection->cut = other.has_busy_messages() ||
                            std::any_of(other.in.begin(), other.in.end(),
                                        [](const Incoming& in) { return in.state == Incoming::State::fetching; });
  connections_.close();
}

}  // namespace collectives
