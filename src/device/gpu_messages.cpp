#include "device/gpu_messages.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "collectives/error.hpp"
#include "shared_memory/round_up.hpp"

namespace collectives {
namespace {

constexpr std::size_t kAlignment = 256;

/// By which a notice is known: a rank in another call may send something else.
constexpr std::uint64_t kNotice = 0x9c0f'51de'e7a4'b263;

/// What a message of the host's holds.
struct Notice {
  std::uint64_t is = kNotice;
  RemoteBuffer at = {};
  std::uint64_t bytes = 0;
};

}  // namespace

GpuMessages::GpuMessages(Device& device, GpuPeers& peers, SharedMemoryTransport& notices, int ranks)
    : peers_(peers), notices_(notices), incoming_(static_cast<std::size_t>(ranks)) {
  for (int rank = 0; rank < ranks; ++rank) frames_.push_back(std::make_unique<DeviceRoom>(device, false));
}

void GpuMessages::begin(std::size_t frame_bytes) {
  assert(!sending());
  frame_bytes_ = frame_bytes;
}

void GpuMessages::keep_for_good() noexcept {
  for (const auto& frames : frames_) frames->keep_for_good();
}

/// The messages of a channel take its frames in turns, as their notices do theirs.
std::byte* GpuMessages::frame(Rank to) const noexcept {
  return frames_[static_cast<std::size_t>(to)]->as<std::byte>(notices_.sent(to) % kFrames *
                                                              round_up(frame_bytes_, kAlignment));
}

std::byte* GpuMessages::stage(Rank to) {
  if (!has_frame(to)) return nullptr;
  frames_[static_cast<std::size_t>(to)]->grow(kFrames * round_up(frame_bytes_, kAlignment));
  return frame(to);
}

void GpuMessages::send_from(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  lent_.push_back({to, notices_.sent(to), data, bytes});
  tell(to, tag, data, bytes);
}

void GpuMessages::tell(Rank to, std::uint64_t tag, const std::byte* data, std::size_t bytes) {
  Notice notice;
  notice.bytes = bytes;
  if (bytes > 0) notice.at = peers_.show_for_certain(data);
  std::memcpy(notices_.stage(to), &notice, sizeof notice);
  notices_.send(to, tag, sizeof notice);
}

const Message* GpuMessages::receive(Rank from) {
  const Message* const told = notices_.receive(from);
  if (told == nullptr) return nullptr;
  Incoming& in = incoming_[static_cast<std::size_t>(from)];
  if (!in.open) {
    in.message = {told->tag, nullptr, told->bytes};
    Notice notice;
    if (told->bytes == sizeof notice) std::memcpy(&notice, told->data, sizeof notice);
    if (told->bytes == sizeof notice && notice.is == kNotice) {
      in.message.bytes = notice.bytes;
      if (notice.bytes > 0) in.message.data = peers_.pointer(from, notice.at);
    }
    in.open = true;
  }
  return &in.message;
}

void GpuMessages::release(Rank from) {
  incoming_[static_cast<std::size_t>(from)].open = false;
  notices_.release(from);
}

bool GpuMessages::lent(const std::byte* data, std::size_t bytes) const noexcept {
  return std::ranges::any_of(lent_, [&](const Lent& one) {
    return one.first < data + bytes && data < one.first + one.bytes && notices_.given_back(one.to) <= one.number;
  });
}

bool GpuMessages::sending() {
  std::erase_if(lent_, [&](const Lent& one) { return notices_.given_back(one.to) > one.number; });
  for (Rank to = 0; to < static_cast<Rank>(frames_.size()); ++to)
    if (notices_.given_back(to) != notices_.sent(to)) return true;
  return false;
}

}  // namespace collectives
