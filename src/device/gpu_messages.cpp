// Implementation of GpuMessages, a transport for messages whose data are in GPU memory.
//
// Inside a host, the sender leaves the data of a message, the payload, in the memory of its GPU. It sends only a
// notice: a short message through CPU memory with the address of the payload. The receiver's GPU then reads the payload
// at this address. Between hosts, the sender copies the payload to CPU memory and sends it from there. A frame is
// memory for one payload.
#include "device/gpu_messages.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/round_up.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

constexpr std::size_t kFrameAlignment = 256;

/// Magic number at the start of a notice. If the number is missing, the message is no notice, because its sender is in
/// another call.
constexpr std::uint64_t kNotice = 0x9c0f'51de'e7a4'b263;

/// Notice, which states the place and length of a payload.
struct Notice {
  std::uint64_t is = kNotice;
  RemoteBuffer at = {};
  std::uint64_t bytes = 0;
};

}  // namespace

GpuMessages::GpuMessages(Device& device, GpuPeers& peers, const RankView& view, SharedMemoryTransport& notices,
                         Wire* wire)
    : peers_(peers), notices_(notices), wire_(wire) {
  for (const Rank rank : view.world.members)
    channels_.emplace_back(device, view.host_of(rank) == view.grid.host ? view.local_of(rank) : -1);
}

void GpuMessages::begin(std::size_t frame_bytes) {
  assert(std::ranges::all_of(lent_, [&](const Lent& one) { return given_back(one); }));
  frame_bytes_ = frame_bytes;
}

void GpuMessages::leak() noexcept {
  for (Channel& one : channels_) {
    one.frames.leak();
    one.receive_buffer.leak();
  }
}

// ---- sending ----

std::size_t GpuMessages::stride() const noexcept { return round_up(frame_bytes_, kFrameAlignment); }

std::size_t GpuMessages::frames_of(const Channel& to) const noexcept {
  return to.local >= 0 ? kFrames : static_cast<std::size_t>(wire_->frames());
}

/// Returns the next frame for messages to a rank. The frames are used in turn.
std::byte* GpuMessages::frame(const Channel& to) const noexcept {
  const std::uint64_t number = to.local >= 0 ? notices_.sent(to.local) : to.sent;
  return to.frames.as<std::byte>(number % frames_of(to) * stride());
}

bool GpuMessages::has_frame(Rank to) {
  const Channel& out = channel(to);
  if (out.local >= 0) return notices_.acquire_frame(out.local) != nullptr;
  return wire_->acquire_frame(to) != nullptr && (out.frames.bytes() == 0 || !wire_->lent(frame(out), frame_bytes_));
}

std::byte* GpuMessages::acquire_frame(Rank to) {
  if (!has_frame(to)) return nullptr;
  channel(to).frames.grow(frames_of(channel(to)) * stride());
  return frame(channel(to));
}

void GpuMessages::send(Rank to, std::uint64_t tag, std::size_t bytes) {
  Channel& out = channel(to);
  if (out.local >= 0) return send_notice(out, tag, frame(out), bytes);
  wire_->send_from(to, tag, frame(out), bytes);
  ++out.sent;
}

void GpuMessages::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  assert(inside(to));
  std::erase_if(lent_, [&](const Lent& one) { return given_back(one); });
  lent_.push_back({to, notices_.sent(channel(to).local), data, bytes});
  send_notice(channel(to), tag, data, bytes);
}

void GpuMessages::send_notice(const Channel& to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  Notice notice;
  notice.bytes = bytes;
  if (bytes > 0) notice.at = peers_.show_for_certain(data);
  std::memcpy(notices_.acquire_frame(to.local), &notice, sizeof notice);
  notices_.send(to.local, tag, sizeof notice);
}

bool GpuMessages::given_back(const Lent& one) const noexcept {
  return notices_.given_back(channel(one.to).local) > one.number;
}

bool GpuMessages::lent(const std::byte* data, std::size_t bytes) const noexcept {
  return std::ranges::any_of(lent_, [&](const Lent& one) {
    return one.first < data + bytes && data < one.first + one.bytes && !given_back(one);
  });
}

bool GpuMessages::sending() {
  std::erase_if(lent_, [&](const Lent& one) { return given_back(one); });
  return (wire_ != nullptr && wire_->sending()) || std::ranges::any_of(channels_, [&](const Channel& one) {
           return one.local >= 0 && notices_.given_back(one.local) != notices_.sent(one.local);
         });
}

// ---- receiving ----

const Message* GpuMessages::receive_into(Rank from, std::byte*, std::size_t bytes) {
  Channel& in = channel(from);
  if (in.open) return &in.message;
  return in.local >= 0 ? receive_here(in) : receive_from_wire(in, from, bytes);
}

const Message* GpuMessages::receive_here(Channel& from) {
  const Message* const received = notices_.receive(from.local);
  if (received == nullptr) return nullptr;
  from.message = {received->tag, nullptr, received->bytes};
  Notice notice;
  if (received->bytes == sizeof notice) std::memcpy(&notice, received->data, sizeof notice);
  if (received->bytes == sizeof notice && notice.is == kNotice) {
    from.message.bytes = notice.bytes;
    if (notice.bytes > 0) from.message.data = peers_.pointer(from.local, notice.at);
  }
  from.open = true;
  return &from.message;
}

const Message* GpuMessages::receive_from_wire(Channel& from, Rank rank, std::size_t bytes) {
  from.receive_buffer.grow(frame_bytes_);
  auto* const receive_buffer = from.receive_buffer.as<std::byte>();
  const Message* const incoming = wire_->receive_into(rank, receive_buffer, bytes);
  if (incoming == nullptr) return nullptr;
  // Copies at most one frame. A longer message belongs to another call, and its tag later causes an error.
  if (incoming->data != receive_buffer && incoming->bytes > 0)
    std::memcpy(receive_buffer, incoming->data, std::min(incoming->bytes, frame_bytes_));
  from.message = {incoming->tag, receive_buffer, incoming->bytes};
  from.open = true;
  return &from.message;
}

void GpuMessages::release(Rank from) {
  Channel& in = channel(from);
  in.open = false;
  in.local >= 0 ? notices_.release(in.local) : wire_->release(from);
}

}  // namespace collectives
