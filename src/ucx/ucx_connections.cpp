// Implementation of the connections over UCX to the ranks of other hosts.
//
// UCX is a library for fast networks. An endpoint is UCX's object for a connection. This file makes the endpoints,
// sends messages over them, and closes them at the end. A flush is an operation of UCX that completes when all messages
// to a peer have been delivered.
#include "ucx/ucx_connections.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "collectives/error.hpp"

namespace collectives {

using namespace ucx;

namespace {

// Maximum time for which wait_for_requests() and close() wait for peers. The time is short, because a peer may be busy
// outside the library.
constexpr auto kPatience = std::chrono::milliseconds(100);

}  // namespace

UcxConnections::UcxConnections(std::unique_ptr<UcxWorker> worker, const PeerAddresses& peers)
    : worker_(std::move(worker)),
      self_(peers.self),
      secret_(peers.token),
      key_(secret_.job_secret()),
      connections_(peers.addresses.size()) {
  const Quiet quiet;
  for (std::size_t rank = 0; rank < connections_.size(); ++rank) {
    Connection& one = connections_[rank];
    one.connections = this;
    one.rank = static_cast<Rank>(rank);
  }
}

void UcxConnections::set_handler(Id id, ucp_am_recv_callback_t callback, void* argument, std::uint32_t flags) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                     UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  param.id = id;
  param.cb = callback;
  param.arg = argument;
  param.flags = UCP_AM_FLAG_WHOLE_MSG | flags;
  check(ucp_worker_set_am_recv_handler(worker_->get(), &param), "ucp_worker_set_am_recv_handler");
}

void UcxConnections::open(const PeerAddresses& peers) {
  for (Connection& other : connections_)
    if (peers.is_remote(other.rank)) make_endpoint(other, peers.addresses[static_cast<std::size_t>(other.rank)]);
}

void UcxConnections::make_endpoint(Connection& other, const std::string& address) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &other;
  params.err_handler.cb = [](void* of, ucp_ep_h, ucs_status_t status) {
    Connection& lost = *static_cast<Connection*>(of);
    lost.connections->lose(lost, status);
  };
  const ucs_status_t status = ucp_ep_create(worker_->get(), &params, &other.endpoint);
  if (status != UCS_OK) {
    other.endpoint = nullptr;
    throw Error(Errc::bootstrap, fmt::format("transport ucx: rank {} cannot be reached: {}", other.rank, words(status)),
                self_, other.rank);
  }
}

// ---- messages

void UcxConnections::progress() {
  if (!worker_) return;     // The connections are closed.
  constexpr int kMost = 8;  // Maximum calls of ucp_worker_progress(), which bounds the time of progress().
  const Quiet quiet;
  for (int i = 0; i < kMost && ucp_worker_progress(worker_->get()) != 0; ++i) {
  }
}

void UcxConnections::wait_for_event(std::chrono::nanoseconds at_most) {
  if (at_most.count() <= 0) return;
  const Quiet quiet;
  if (!worker_ || worker_->event_fd() < 0) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(at_most, std::chrono::microseconds(50)));
    return;
  }
  const ucs_status_t armed = ucp_worker_arm(worker_->get());
  if (armed == UCS_OK) {
    pollfd event{.fd = worker_->event_fd(), .events = POLLIN, .revents = 0};
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at_most);
    const timespec time{.tv_sec = static_cast<time_t>(seconds.count()),
                        .tv_nsec = static_cast<long>((at_most - seconds).count())};
    ::ppoll(&event, 1, &time, nullptr);
  }
  progress();
}

ucs_status_t UcxConnections::post(ucp_ep_h to, Id id, Outgoing& message, const void* data, std::size_t bytes,
                                  std::uint32_t flags, ucp_send_nbx_callback_t done) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = done;
  param.user_data = &message;
  const ucs_status_ptr_t request = ucp_am_send_nbx(to, id, &message.header, sizeof message.header, data, bytes, &param);
  message.busy = UCS_PTR_IS_PTR(request);
  if (message.busy) begin_request();
  return UCS_PTR_RAW_STATUS(request);
}

void UcxConnections::send(Connection& to, Id id, Outgoing& message, const void* data, std::size_t bytes,
                          std::uint32_t flags, ucp_send_nbx_callback_t done) {
  const Quiet quiet;
  const ucs_status_t status = post(to.endpoint, id, message, data, bytes, flags, done);
  if (!message.busy && status != UCS_OK) lose(to, status);
}

void UcxConnections::sent(void* request, ucs_status_t, void* message) {
  complete(*static_cast<Outgoing*>(message));
  ucp_request_free(request);
}

UcxConnections::Connection* UcxConnections::sender(const void* header, std::size_t header_bytes,
                                                   Header& theirs) noexcept {
  Connection* const other = claimed_sender(header, header_bytes, theirs);
  return other != nullptr && theirs.key == key_ ? other : nullptr;
}

UcxConnections::Connection* UcxConnections::claimed_sender(const void* header, std::size_t header_bytes,
                                                           Header& theirs) noexcept {
  if (header_bytes != sizeof theirs) return nullptr;
  std::memcpy(&theirs, header, sizeof theirs);
  if (theirs.from >= connections_.size()) return nullptr;
  Connection& other = connections_[theirs.from];
  return other.endpoint != nullptr ? &other : nullptr;
}

void UcxConnections::lose(Connection& gone, ucs_status_t status) noexcept {
  if (gone.lost) return;
  try {
    gone.lost = words(status);
    lost_.push_back(gone.rank);
  } catch (const std::bad_alloc&) {
    // Without memory, the peer is not reported as lost. Calls that wait for the peer then end at their deadline.
  }
}

std::optional<std::pair<Rank, std::string>> UcxConnections::take_lost(const ControlChannel& controls) {
  progress();
  if (lost_.empty() || controls.has_texts()) return std::nullopt;
  const Rank rank = lost_.front();
  lost_.pop_front();
  return std::make_pair(rank, *at(rank).lost);
}

// ---- flush and close

bool UcxConnections::flushed(Connection& to) {
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

template <class Busy>
void UcxConnections::wait_while(Busy busy) {
  const Deadline deadline = Deadline::in(kPatience);
  while (true) {
    progress();
    if (!busy() || deadline.passed()) return;
    wait_for_event(std::chrono::milliseconds(1));
  }
}

void UcxConnections::wait_for_requests() {
  wait_while([this] { return has_requests(); });
}

void UcxConnections::close() {
  const Quiet quiet;
  std::vector<void*> closing;
  closing.reserve(2 * connections_.size());
  for (Connection& other : connections_) {
    if (other.endpoint == nullptr) continue;
    if (other.pending != nullptr) closing.push_back(std::exchange(other.pending, nullptr));
    const bool cut = other.cut || other.lost || !other.up;
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
  worker_.reset();  // Destroys the worker now, before the owners of messages free memory that UCX may still use.
}

}  // namespace collectives
