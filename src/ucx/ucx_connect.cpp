// Begin and end of a wire over UCX: endpoints and their handshake, then flush and close.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>

#include "base/text.hpp"
#include "collectives/error.hpp"
#include "ucx/ucx.hpp"

namespace collectives {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(100);  // Wait for a peer that may be busy outside the library.
// Longest message that is sent eagerly. A longer one is announced and fetched. A fetch costs a round trip and saves a
// copy on both sides. Over TCP on loopback, 64 KiB take 18 us eagerly and 25 us fetched; the rates are 5.5 and 2.5
// GB/s.
constexpr std::size_t kEagerBytes = 64 << 10;
constexpr std::size_t kEagerBytesOnFastDevice = 8 << 10;

std::uint64_t key_of(std::string_view token) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char letter : token) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

}  // namespace

UcxNetwork::UcxNetwork() : worker_(std::make_unique<UcxWorker>()), address_(worker_->address()) {}

std::unique_ptr<Wire> UcxNetwork::connect(const PeerAddresses& peers) {
  if (!worker_) throw Error(Errc::invalid_argument, "transport ucx: this network is connected already");
  return std::make_unique<UcxTransport>(std::move(worker_), peers);
}

UcxTransport::UcxTransport(std::unique_ptr<UcxWorker> worker, const PeerAddresses& peers)
    : worker_(std::move(worker)),
      self_(peers.self),
      token_(peers.token),
      key_(key_of(peers.token)),
      frame_bytes_(peers.frame_bytes),
      eager_bytes_(UcxWorker::on_fast_device() ? kEagerBytesOnFastDevice : kEagerBytes),
      peers_(peers.addresses.size()) {
  const ucx::Quiet quiet;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    peer.wire = this;
    peer.rank = static_cast<Rank>(rank);
    for (Outgoing& out : peer.out) out.wire = this, out.peer = &peer;
    for (Outgoing* out : {&peer.hello, &peer.welcome, &peer.ready, &peer.news}) out->wire = this, out->peer = &peer;
    for (Incoming& in : peer.in) in.wire = this;
  }
  set_handlers();
  try {
    for (Peer& other : peers_) {
      if (peers.is_remote(other.rank)) make_endpoint(other, peers.addresses[static_cast<std::size_t>(other.rank)]);
    }
    shake_hands(peers.deadline);
  } catch (...) {
    close();
    throw;
  }
}

UcxTransport::~UcxTransport() { close(); }

void UcxTransport::make_endpoint(Peer& other, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &other;
  params.err_handler.cb = [](void* of, ucp_ep_h, ucs_status_t status) {
    Peer& lost = *static_cast<Peer*>(of);
    lost.wire->lose(lost, status);
  };
  const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &other.endpoint);
  if (status != UCS_OK) {
    other.endpoint = nullptr;
    throw Error(Errc::bootstrap,
                fmt::format("transport ucx: rank {} cannot be reached: {}", other.rank, ucx::words(status)), self_,
                other.rank);
  }
}

void UcxTransport::shake_hands(Deadline deadline) {
  for (Peer& other : peers_) {
    if (other.endpoint == nullptr) continue;
    greet(other, kHello, other.hello, token_, UCP_AM_SEND_FLAG_REPLY);
  }
  const auto missing = [&](auto&& is_missing) {
    std::vector<Rank> ranks;
    for (const Peer& other : peers_) {
      if (other.endpoint != nullptr && is_missing(other)) ranks.push_back(other.rank);
    }
    return ranks;
  };
  while (true) {
    progress_worker();
    for (Peer& other : peers_) bring_up(other);
    std::optional<Error> failure;
    const auto unmet = missing([](const Peer& other) { return !other.up || !other.up_there; });
    const auto lost = missing([](const Peer& other) { return other.lost.has_value(); });
    if (refused_by_) {
      failure.emplace(Errc::bootstrap,
                      fmt::format("transport ucx: rank {} refuses rank {}, whose token is not that of its job",
                                  *refused_by_, self_),
                      self_, *refused_by_);
    } else if (!lost.empty()) {
      failure.emplace(
          Errc::bootstrap,
          fmt::format("transport ucx: {} cannot be reached: {}", ranks_text(lost), *peer(lost.front()).lost), self_,
          lost.front());
    } else if (unmet.empty()) {
      return;
    } else if (deadline.passed()) {
      failure.emplace(Errc::timeout,
                      fmt::format("transport ucx: no answer from {} within the time for connecting", ranks_text(unmet)),
                      self_, unmet.empty() ? kNoRank : unmet.front());
    }
    if (failure) throw *failure;
    wait_for_event(std::chrono::milliseconds(deadline.milliseconds_left(10)));
  }
}

/// Completes the connection to a peer. UCX connects some parts of an endpoint in the background, and both sides have to
/// call UCX for that. Each side therefore sends kReady once its own part is connected.
void UcxTransport::bring_up(Peer& other) {
  if (!other.heard || !other.answered || other.up || other.lost) return;
  if (!flushed(other)) return;
  other.up = true;
  greet(other, kReady, other.ready, {}, 0);
}

/// Sends a message of the handshake.
void UcxTransport::greet(Peer& to, unsigned id, Outgoing& out, std::string_view text, std::uint32_t flags) {
  out.header = {.key = key_, .from = static_cast<std::uint32_t>(self_)};
  const ucs_status_t status =
      post(to.endpoint, id, out.header, text.data(), text.size(), UCP_AM_SEND_FLAG_EAGER | flags, sent, &out, out.busy);
  if (out.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(to, status);
  }
}

ucs_status_t UcxTransport::on_hello(const void* header, std::size_t header_bytes, std::string_view token,
                                    const ucp_am_recv_param_t* param) noexcept {
  Header theirs;
  if (header_bytes != sizeof theirs || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
  std::memcpy(&theirs, header, sizeof theirs);
  if (Peer* other = sender(header, header_bytes, theirs); other != nullptr && token == token_) {
    other->heard = true;
    if (!other->welcome.busy) greet(*other, kWelcome, other->welcome, {}, 0);
  } else if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0) {
    // Refuses a process of another job on the reply endpoint, the only connection to it. The refusal carries that
    // process's own key, so that it accepts the message.
    try {
      Control& refusal = controls_out_.emplace_back();
      refusal.wire = this;
      refusal.header = {.key = theirs.key, .from = static_cast<std::uint32_t>(self_)};
      post(param->reply_ep, kRefusal, refusal.header, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, control_done, &refusal,
           refusal.busy);
      if (refusal.busy) ++in_progress_;
    } catch (const std::bad_alloc&) {
    }
  }
  return UCS_OK;
}

ucs_status_t UcxTransport::on_answer(unsigned id, const void* header, std::size_t header_bytes) noexcept {
  Header theirs;
  if (Peer* other = sender(header, header_bytes, theirs)) {
    if (id == kWelcome) other->answered = true;
    if (id == kReady) other->up_there = true;
    if (id == kRefusal) refused_by_ = other->rank;
  }
  return UCS_OK;
}

/// Returns whether the peer's UCX has all sent messages. It may confirm that only while the peer calls UCX.
bool UcxTransport::flushed(Peer& to) {
  if (to.pending == nullptr && !to.flushed) {
    to.flushed = true;
    const ucp_request_param_t param{};
    const ucs_status_ptr_t request = ucp_ep_flush_nbx(to.endpoint, &param);
    if (UCS_PTR_IS_PTR(request)) to.pending = request;
  }
  if (to.pending == nullptr) return true;
  if (ucp_request_check_status(to.pending) == UCS_INPROGRESS) return false;
  ucp_request_free(std::exchange(to.pending, nullptr));
  return to.flushed;
}

void UcxTransport::flush(Deadline deadline) {
  const ucx::Quiet quiet;
  while (true) {
    progress_worker();
    std::vector<Rank> waiting;
    for (const Peer& other : peers_) {
      const bool busy = std::any_of(other.out.begin(), other.out.end(), [](const Outgoing& out) { return out.busy; }) ||
                        std::any_of(controls_out_.begin(), controls_out_.end(),
                                    [&](const Control& control) { return control.busy && control.to == other.rank; });
      if (busy && !other.lost) waiting.push_back(other.rank);
    }
    if (waiting.empty()) break;
    if (deadline.passed()) {
      throw Error(Errc::timeout, fmt::format("transport ucx: {} has not taken its messages", ranks_text(waiting)),
                  self_, waiting.front());
    }
    wait_for_event(std::chrono::milliseconds(1));
  }
  // The network or the kernel has the other messages, which are short. A peer that is busy outside the library does not
  // confirm them.
  const Deadline patience = Deadline::in(kPatience);
  while (!patience.passed() && !deadline.passed()) {
    bool all = true;
    for (Peer& other : peers_) all = (other.endpoint == nullptr || other.lost || flushed(other)) && all;
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
  if (!worker_) return;
  const ucx::Quiet quiet;
  const auto wait_while = [&](auto&& busy) {
    const Deadline deadline = Deadline::in(kPatience);
    while (true) {
      progress_worker();
      if (!busy() || deadline.passed()) return;
      wait_for_event(std::chrono::milliseconds(1));
    }
  };
  closing_ = true;
  for (Peer& other : peers_) {
    for (Incoming& in : other.in) {
      if (in.kept != nullptr) ucp_am_data_release(worker_->get(), std::exchange(in.kept, nullptr));
    }
  }
  wait_while([&] { return in_progress_ > 0; });

  std::vector<void*> closing;
  closing.reserve(2 * peers_.size());
  for (Peer& other : peers_) {
    if (other.endpoint == nullptr) continue;
    if (other.pending != nullptr) closing.push_back(std::exchange(other.pending, nullptr));
    const bool cut = other.lost || !other.up ||
                     std::any_of(other.out.begin(), other.out.end(), [](const Outgoing& out) { return out.busy; }) ||
                     std::any_of(other.in.begin(), other.in.end(),
                                 [](const Incoming& in) { return in.state == Incoming::State::fetching; });
    ucp_request_param_t param{};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = cut ? static_cast<std::uint32_t>(UCP_EP_CLOSE_FLAG_FORCE) : 0;
    const ucs_status_ptr_t request = ucp_ep_close_nbx(other.endpoint, &param);
    closing.push_back(UCS_PTR_IS_PTR(request) ? request : nullptr);
  }
  wait_while([&] {
    return std::any_of(closing.begin(), closing.end(), [](void* request) {
      return request != nullptr && ucp_request_check_status(request) == UCS_INPROGRESS;
    });
  });
  for (void* request : closing) {
    if (request != nullptr) ucp_request_free(request);
  }
  worker_.reset();  // Ends before the memory that UCX may still use.
}

}  // namespace collectives
