// Implementation of the wire over UCX: progress, sending, receiving, and the release of messages.
//
// An endpoint is the connection of a worker of UCX to one peer. A frame is memory for one message. A message is
// released when its receiver has read it and reports that to the sender. ucx_connect.cpp makes the connections.
#include "ucx/ucx.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "collectives/error.hpp"

namespace collectives {

void UcxTransport::set_handlers() {
  const auto set = [&](unsigned id, ucp_am_recv_callback_t callback, std::uint32_t flags = 0) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                       UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    param.id = id;
    param.cb = callback;
    param.arg = this;
    param.flags = UCP_AM_FLAG_WHOLE_MSG | flags;
    ucx::check(ucp_worker_set_am_recv_handler(worker_->get(), &param), "ucp_worker_set_am_recv_handler");
  };
  set(kHello, [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                 const ucp_am_recv_param_t* param) {
    return static_cast<UcxTransport*>(self)->on_hello(header, header_bytes, {static_cast<const char*>(data), bytes},
                                                      param);
  });
  set(kWelcome,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kWelcome, header, header_bytes);
      });
  set(kRefusal,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kRefusal, header, header_bytes);
      });
  set(kReady,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        return static_cast<UcxTransport*>(self)->on_answer(kReady, header, header_bytes);
      });
  set(
      kData,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        return static_cast<UcxTransport*>(self)->on_data(header, header_bytes, data, bytes, param);
      },
      UCP_AM_FLAG_PERSISTENT_DATA);
  set(kNews,
      [](void* self, const void* header, std::size_t header_bytes, void*, std::size_t, const ucp_am_recv_param_t*) {
        static_cast<UcxTransport*>(self)->on_news(header, header_bytes);
        return UCS_OK;
      });
  set(kControl, [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                   const ucp_am_recv_param_t* param) {
    if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;  // No rank of this library sends them.
    static_cast<UcxTransport*>(self)->on_control(header, header_bytes, {static_cast<const char*>(data), bytes});
    return UCS_OK;
  });
}

UcxTransport::Peer* UcxTransport::sender(const void* header, std::size_t header_bytes, Header& theirs) noexcept {
  if (header_bytes != sizeof theirs) return nullptr;
  std::memcpy(&theirs, header, sizeof theirs);
  if (theirs.key != key_ || theirs.from >= peers_.size()) return nullptr;
  Peer& other = peers_[theirs.from];
  return other.endpoint != nullptr ? &other : nullptr;
}

// ---- progress

void UcxTransport::progress_worker() {
  if (!worker_) return;     // The connections are closed.
  constexpr int kMost = 8;  // Bounds the time of one call.
  const ucx::Quiet quiet;
  for (int i = 0; i < kMost && ucp_worker_progress(worker_->get()) != 0; ++i) {
  }
}

void UcxTransport::progress() {
  if (in_progress_ > 0) progress_worker();
}

void UcxTransport::wait_for_event(std::chrono::nanoseconds at_most) {
  if (at_most.count() <= 0) return;
  const ucx::Quiet quiet;
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
  progress_worker();
}

/// Sends an active message. The memory must stay valid while `busy` is true; `done` must clear `busy`. UCX does not
/// call `done` if it has sent the message at once; `busy` is then false.
ucs_status_t UcxTransport::post(ucp_ep_h to, unsigned id, const Header& header, const void* data, std::size_t bytes,
                                std::uint32_t flags, ucp_send_nbx_callback_t done, void* of, bool& busy) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = done;
  param.user_data = of;
  const ucs_status_ptr_t request = ucp_am_send_nbx(to, id, &header, sizeof header, data, bytes, &param);
  busy = UCS_PTR_IS_PTR(request);
  return UCS_PTR_RAW_STATUS(request);
}

UcxTransport::Frame UcxTransport::take_frame() noexcept {
  if (!free_frames_.empty()) {
    Frame frame = std::move(free_frames_.back());
    free_frames_.pop_back();
    return frame;
  }
  const std::size_t rounded =
      std::max((frame_bytes_ + UcxWorker::kAlignment - 1) / UcxWorker::kAlignment, std::size_t{1}) *
      UcxWorker::kAlignment;
  return Frame(static_cast<std::byte*>(std::aligned_alloc(UcxWorker::kAlignment, rounded)));
}

void UcxTransport::give_frame(Frame frame) noexcept {
  try {
    if (frame) free_frames_.push_back(std::move(frame));
  } catch (const std::bad_alloc&) {  // The frame is freed instead.
  }
}

// ---- sending

std::byte* UcxTransport::acquire_frame(Rank to) {
  Peer& receiver = peer(to);
  const auto free = [&] {
    return static_cast<std::uint16_t>(receiver.next_out - receiver.released_there) < kWindow &&
           !receiver.out[receiver.next_out % kWindow].busy && (receiver.acquired || receiver.frames_out < kFrames);
  };
  if (!free()) {
    progress_worker();
    if (!free()) return nullptr;
  }
  if (!receiver.acquired) {
    receiver.acquired = take_frame();
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
  out.header = {.tag = tag,
                .key = key_,
                .from = static_cast<std::uint32_t>(self_),
                .number = to.next_out++,
                .released = to.next_in};
  to.released_told = to.next_in;
  to.flushed = false;
  if (from_frame) out.frame = std::move(to.acquired);
  if (to.lost) return finish(out);
  const ucx::Quiet quiet;
  const ucs_status_t status =
      post(to.endpoint, kData, out.header, data, bytes,
           bytes <= eager_bytes_ ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV, sent, &out, out.busy);
  if (!out.busy) {
    finish(out);
    if (status != UCS_OK) lose(to, status);
    return;
  }
  ++in_progress_;
  if (!from_frame) {
    out.lent = {data, bytes};
    lend(data, bytes);
  }
}

/// Ignores the status: the error handler of the endpoint reports a failed peer.
void UcxTransport::sent(void* request, ucs_status_t, void* of) {
  Outgoing& done = *static_cast<Outgoing*>(of);
  --done.wire->in_progress_;
  done.busy = false;
  done.wire->finish(done);
  ucp_request_free(request);
}

void UcxTransport::finish(Outgoing& out) noexcept {
  if (&out == &out.peer->news) return send_releases(*out.peer);  // Reports releases since this message.
  if (out.frame) {
    give_frame(std::move(out.frame));
    --out.peer->frames_out;
  }
  if (const auto [data, bytes] = std::exchange(out.lent, {}); data != nullptr) take_back(data, bytes);
}

void UcxTransport::lend(const std::byte* data, std::size_t bytes) { lent_.emplace_back(data, bytes); }

/// Removes one entry of the range. Several messages may lend the same range; any of its entries may be removed.
void UcxTransport::take_back(const std::byte* data, std::size_t bytes) noexcept {
  const auto at = std::ranges::find(lent_, std::pair(data, bytes));
  *at = lent_.back();
  lent_.pop_back();
}

bool UcxTransport::lent(const std::byte* data, std::size_t bytes) const noexcept {
  return std::any_of(lent_.begin(), lent_.end(), [&](const auto& range) {
    return range.first < data + bytes && data < range.first + range.second;
  });
}

// ---- receiving

ucs_status_t UcxTransport::on_data(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                                   const ucp_am_recv_param_t* param) noexcept {
  Header theirs;
  Peer* from = sender(header, header_bytes, theirs);
  if (from == nullptr || !from->heard || bytes > frame_bytes_ || closing_) return UCS_OK;
  note_releases(*from, theirs);
  Incoming& in = from->in[theirs.number % kWindow];
  if (static_cast<std::uint16_t>(theirs.number - from->next_in) >= kWindow || in.state != Incoming::State::empty) {
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
  in.frame = take_frame();
  if (!in.frame) {
    lose(*from, UCS_ERR_NO_MEMORY);
    in.state = Incoming::State::fetching;  // The message never arrives.
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
  if (in.state != Incoming::State::announced) progress_worker();
  if (in.state == Incoming::State::announced) {
    fetch(sender, in, place, bytes);
    progress_worker();
  }
  return in.state == Incoming::State::arrived ? &in.message : nullptr;
}

void UcxTransport::fetch(Peer& from, Incoming& in, std::byte* place, std::size_t bytes) {
  if (place == nullptr || bytes != in.message.bytes) {
    in.frame = take_frame();
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
    --done.wire->in_progress_;
    done.wire->fetched(done, status);
    ucp_request_free(request);
  };
  param.user_data = &in;
  const ucs_status_ptr_t request =
      ucp_am_recv_data_nbx(worker_->get(), std::exchange(in.kept, nullptr), place, in.message.bytes, &param);
  if (!UCS_PTR_IS_PTR(request)) {
    fetched(in, UCS_PTR_RAW_STATUS(request));
    if (UCS_PTR_IS_ERR(request)) lose(from, UCS_PTR_STATUS(request));
    return;
  }
  ++in_progress_;
  if (!in.frame) {
    in.lent = true;
    lend(place, in.message.bytes);
  }
}

/// Marks the message as arrived if the fetch succeeded. Otherwise it never arrives; its sender is lost.
void UcxTransport::fetched(Incoming& in, ucs_status_t status) noexcept {
  if (std::exchange(in.lent, false)) take_back(in.message.data, in.message.bytes);
  if (status == UCS_OK) in.state = Incoming::State::arrived;
}

void UcxTransport::release(Rank from) {
  Peer& sender = peer(from);
  Incoming& in = sender.in[sender.next_in % kWindow];
  if (in.kept != nullptr) ucp_am_data_release(worker_->get(), std::exchange(in.kept, nullptr));
  give_frame(std::move(in.frame));
  in.state = Incoming::State::empty;
  ++sender.next_in;
  send_releases(sender);
}

void UcxTransport::send_releases(Peer& to) noexcept {
  if (static_cast<std::uint16_t>(to.next_in - to.released_told) < kTellEvery || to.news.busy || to.lost) return;
  to.news.header = {.key = key_, .from = static_cast<std::uint32_t>(self_), .released = to.next_in};
  to.released_told = to.next_in;
  const ucx::Quiet quiet;
  const ucs_status_t status =
      post(to.endpoint, kNews, to.news.header, nullptr, 0, UCP_AM_SEND_FLAG_EAGER, sent, &to.news, to.news.busy);
  if (to.news.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(to, status);
  }
}

/// Stores the releases that a header reports. Ignores an older report, because headers may arrive out of order.
void UcxTransport::note_releases(Peer& of, const Header& theirs) noexcept {
  const auto ahead = static_cast<std::uint16_t>(theirs.released - of.released_there);
  if (ahead <= static_cast<std::uint16_t>(of.next_out - of.released_there)) of.released_there = theirs.released;
}

void UcxTransport::on_news(const void* header, std::size_t header_bytes) noexcept {
  Header theirs;
  if (Peer* from = sender(header, header_bytes, theirs)) note_releases(*from, theirs);
}

// ---- control messages and failed peers

void UcxTransport::post_control(Rank to, std::string_view text) {
  if (!worker_) return;
  std::erase_if(controls_out_, [](const Control& control) { return !control.busy; });
  Peer& receiver = peer(to);
  if (receiver.lost || controls_out_.size() >= kMaxControlsInFlight) return;
  Control& control = controls_out_.emplace_back();
  control.wire = this;
  control.to = to;
  control.text = text;
  control.header = {
      .key = key_, .from = static_cast<std::uint32_t>(self_), .number = receiver.next_control_out++, .released = 0};
  receiver.flushed = false;
  const ucx::Quiet quiet;
  const ucs_status_t status = post(receiver.endpoint, kControl, control.header, control.text.data(),
                                   control.text.size(), UCP_AM_SEND_FLAG_EAGER, control_done, &control, control.busy);
  if (control.busy) {
    ++in_progress_;
  } else if (status != UCS_OK) {
    lose(receiver, status);
  }
}

void UcxTransport::control_done(void* request, ucs_status_t, void* of) {
  Control& done = *static_cast<Control*>(of);
  --done.wire->in_progress_;
  done.busy = false;
  ucp_request_free(request);
}

void UcxTransport::on_control(const void* header, std::size_t header_bytes, std::string_view text) noexcept {
  Header theirs;
  Peer* from = sender(header, header_bytes, theirs);
  if (from == nullptr || !from->heard) return;
  try {
    from->early_controls.insert_or_assign(theirs.number, std::string(text));
    while (true) {
      const auto next = from->early_controls.find(from->next_control_in);
      if (next == from->early_controls.end()) break;
      controls_in_.emplace_back(from->rank, std::move(next->second));
      from->early_controls.erase(next);
      ++from->next_control_in;
    }
  } catch (const std::bad_alloc&) {
    lose(*from, UCS_ERR_NO_MEMORY);
  }
}

std::optional<std::pair<Rank, std::string>> UcxTransport::poll_control() {
  if (controls_in_.empty()) progress_worker();
  if (controls_in_.empty()) return std::nullopt;
  auto arrived = std::move(controls_in_.front());
  controls_in_.pop_front();
  return arrived;
}

void UcxTransport::lose(Peer& gone, ucs_status_t status) noexcept {
  if (gone.lost) return;
  try {
    gone.lost = ucx::words(status);
    lost_.push_back(gone.rank);
  } catch (const std::bad_alloc&) {  // The peer is not reported; calls end by their deadlines.
  }
}

std::optional<std::pair<Rank, std::string>> UcxTransport::poll_failed_peer() {
  if (lost_.empty()) progress_worker();
  for (auto gone = lost_.begin(); gone != lost_.end(); ++gone) {
    const Rank rank = *gone;
    if (std::any_of(controls_in_.begin(), controls_in_.end(), [&](const auto& text) { return text.first == rank; })) {
      continue;
    }
    lost_.erase(gone);
    return std::make_pair(rank, *peer(rank).lost);
  }
  return std::nullopt;
}

}  // namespace collectives
