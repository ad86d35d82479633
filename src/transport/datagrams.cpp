// Implementation of DatagramLink, which carries short messages by UDP between two ranks. It acknowledges messages,
// detects losses and sorts messages that arrive out of order (datagrams.hpp).
//
// A message is sent in one or several pieces, each in one packet (datagram_pieces.hpp). All pieces but the last have
// `piece_` bytes of payload. A slot is memory of the sender for a copy of one message. It holds the copy until the peer
// acknowledges the message. The reorder buffer holds arrived messages, complete or in part, until the caller takes
// them.
#include "transport/datagrams.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include "collectives/error.hpp"

namespace collectives {

using namespace datagram;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestPacket = 9000;                     // Maximum bytes of an Ethernet jumbo packet.
constexpr std::size_t kUsualPacket = 1500;                       // Maximum bytes of a usual Ethernet packet.
constexpr std::size_t kHeadings4 = 20 + 8, kHeadings6 = 40 + 8;  // Bytes of IP and UDP headers, IPv4 and IPv6.
constexpr int kUdpSegment = 103, kUdpGro = 104;  // UDP_SEGMENT and UDP_GRO: old system headers lack the names.
// Maximum number of calls of recv() in one DatagramLink::read(). After an error, and after it has dropped a foreign
// datagram, read() calls recv() again.
constexpr int kDropsAtOnce = 64;
// Maximum number of reads in one loop, so that the loop ends even if datagrams arrive without end.
constexpr int kReadsAtOnce = 1024;
// Maximum time for which a link uses only the stream (the TCP connection for data) after a datagram was lost.
constexpr auto kLongestPause = std::chrono::minutes(1);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  in_port_t& port() {
    return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(storage).sin_port;
  }
};

[[noreturn]] void refuse(const char* what) { throw Error(Errc::system, what + (": " + tcp::error_text(errno))); }

/// Returns an address of `socket`: its own if `ask` is getsockname, the peer's if `ask` is getpeername. Converts an
/// IPv4 address in IPv6 form to a plain IPv4 address, because sending to the IPv6 form takes 0.25 us more per message.
SocketAddress address_of(const tcp::Socket& socket, decltype(&::getsockname) ask) {
  SocketAddress address;
  if (ask(socket.fd(), address.get(), &address.bytes) != 0) refuse("getsockname");
  sockaddr_in6 six;
  std::memcpy(&six, &address.storage, sizeof six);
  if (six.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr)) return address;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = six.sin6_port;
  std::memcpy(&four.sin_addr, six.sin6_addr.s6_addr + sizeof six.sin6_addr - sizeof four.sin_addr,
              sizeof four.sin_addr);
  std::memcpy(&address.storage, &four, sizeof four);
  address.bytes = sizeof four;
  return address;
}

}  // namespace

DatagramLink::DatagramLink(const tcp::Socket& stream, const Tokens& tokens, const DatagramSettings& settings)
    : tokens_(tokens), settings_(settings) {
  SocketAddress mine = address_of(stream, ::getsockname);
  mine.port() = 0;
  socket_ = tcp::Socket(::socket(mine.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_.fd() < 0) refuse("socket");
  if (::bind(socket_.fd(), mine.get(), mine.bytes) != 0) refuse("bind");
  port_ = ntohs(address_of(socket_, ::getsockname).port());
  // The receive buffer needs four times the window, because a packet takes up to three times its bytes in the buffer.
  // The kernel doubles the requested size.
  int space = 0;
  socklen_t bytes = sizeof space;
  if (::getsockopt(socket_.fd(), SOL_SOCKET, SO_RCVBUF, &space, &bytes) == 0 && space < int{4 * kWindowBytes})
    tcp::set_option(socket_, SOL_SOCKET, SO_RCVBUF, 2 * kWindowBytes);
}

void DatagramLink::connect(const tcp::Socket& stream, std::uint16_t port) {
  SocketAddress theirs = address_of(stream, ::getpeername);
  theirs.port() = htons(port);
  if (::connect(socket_.fd(), theirs.get(), theirs.bytes) != 0) refuse("connect");
  std::byte first{};  // The peer repeats a probe that is dropped here.
  for (int i = 0; i < kReadsAtOnce && ::recv(socket_.fd(), &first, sizeof first, MSG_DONTWAIT) >= 0; ++i) ++dropped_;
  const bool six = theirs.storage.ss_family == AF_INET6;
  // Makes the kernel refuse a packet that is too long for the path. The TCP stream then carries the message.
  if (six)
    tcp::set_option(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  else
    tcp::set_option(socket_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  int packet = 0;
  socklen_t bytes = sizeof packet;
  if (::getsockopt(socket_.fd(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &packet, &bytes) != 0)
    packet = kUsualPacket;
  const std::size_t headings = (six ? kHeadings6 : kHeadings4) + sizeof(Heading);
  piece_ = std::clamp<std::size_t>(static_cast<std::size_t>(packet), headings, kLargestPacket) - headings;
  const int none = 0;
  const bool cuts = ::setsockopt(socket_.fd(), IPPROTO_UDP, kUdpSegment, &none, sizeof none) == 0;
  longest_ = cuts ? std::clamp(kMostPieces * piece_, piece_, kLongest) : piece_;
}

// ---- handshake ----

void DatagramLink::probe() {
  const AlignedBuffer buffer = make_buffer(piece_);
  std::memset(payload_in(buffer), 0, piece_);
  write_whole(heading_in(buffer), kProbe, 0, {.bytes = static_cast<std::uint32_t>(piece_)});
}

bool DatagramLink::heard() {
  if (!heard_) read_ahead(kFirstNumber);
  return heard_;
}

// ---- sending ----

/// Sends the pieces of one message. The pieces lie at `from`, each with its heading. All pieces but the last fill a
/// packet. Returns false if the kernel refuses the pieces. Uses UDP_SEGMENT only for several packets, because a single
/// packet takes less time without it.
bool DatagramLink::write(std::byte* from, std::size_t bytes) noexcept {
  const std::size_t packet = sizeof(Heading) + piece_;
  if (bytes <= packet) return ::send(socket_.fd(), from, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
  iovec all{from, bytes};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(std::uint16_t))> space{};
  msghdr call{};
  call.msg_iov = &all;
  call.msg_iovlen = 1;
  call.msg_control = space.data();
  call.msg_controllen = space.size();
  cmsghdr* const cut = CMSG_FIRSTHDR(&call);
  cut->cmsg_level = IPPROTO_UDP;
  cut->cmsg_type = kUdpSegment;
  cut->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
  const auto size = static_cast<std::uint16_t>(packet);
  std::memcpy(CMSG_DATA(cut), &size, sizeof size);
  return ::sendmsg(socket_.fd(), &call, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

/// Sends a message in one piece. Its payload, if any, lies behind `heading`.
bool DatagramLink::write_whole(std::byte* heading, Kind kind, std::uint32_t taken,
                               const MessageHeader& message) noexcept {
  const Heading written{tokens_.sent, kind, taken, message, 0, message.bytes};
  std::memcpy(heading, &written, sizeof written);
  return write(heading, sizeof written + message.bytes);
}

/// Returns a free slot if the window permits `bytes` more unacknowledged bytes, else null. Requires that mutex_ is
/// locked.
DatagramLink::Slot* DatagramLink::slot_for(std::size_t bytes) {
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (slot.used)
      bytes += slot.header.bytes;
    else if (found == nullptr)
      found = &slot;
  }
  return bytes <= kWindowBytes ? found : nullptr;
}

bool DatagramLink::send(const MessageHeader& header, const std::byte* data, std::uint32_t taken) {
  const bool cut = header.bytes > piece_;
  if (!allowed_ || header.bytes > longest_ || all_pause_.lasts() || (cut && pieces_pause_.lasts())) return false;
  std::unique_lock lock(mutex_);
  Slot* slot = slot_for(header.bytes);
  if (slot == nullptr) {
    lock.unlock();
    read_ahead(taken);  // It may read acknowledgements.
    lock.lock();
    slot = slot_for(header.bytes);
    if (slot == nullptr) return false;
  }
  if (slot->buffer == nullptr) slot->buffer = make_buffer(longest_ + kMostPieces * sizeof(Heading));
  // Copies the message in the form in which it is sent: each piece behind its heading.
  std::byte* const begin = heading_in(slot->buffer);
  std::byte* end = begin;
  Heading heading{tokens_.sent, kMessage, taken, header, 0, static_cast<std::uint32_t>(piece_)};
  do {
    const std::size_t length = heading.length();
    std::memcpy(end, &heading, sizeof heading);
    end += sizeof heading;
    if (length > 0) std::memcpy(end, data + heading.offset, length);
    end += length;
    heading.offset += static_cast<std::uint32_t>(length);
  } while (heading.offset < header.bytes);
  slot->header = header;
  slot->tick = tick_;
  slot->retransmitted = false;
  const bool lost = to_lose_ > 0 || (settings_.lose_every > 0 && (sent_ + 1) % settings_.lose_every == 0);
  if (to_lose_ > 0) --to_lose_;
  if (!lost && !write(begin, static_cast<std::size_t>(end - begin))) {
    // The path no longer takes packets of this size, or the network device cannot cut messages.
    if (cut && (errno == EMSGSIZE || errno == EINVAL || errno == EIO)) longest_ = piece_;
    return false;
  }
  slot->used = true;
  ++sent_;
  clear_unacknowledged();
  only_receives_ = false;
  return true;
}

/// Frees the slots of messages before `number`, which the peer has acknowledged. Requires that mutex_ is locked.
void DatagramLink::free_slots_before(std::uint32_t number) {
  for (Slot& slot : slots_) slot.used = slot.used && !is_before(slot.header.number, number);
}

void DatagramLink::free_before(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  free_slots_before(number);
}

void DatagramLink::acknowledged(std::uint32_t number, bool lost) {
  if (lost) {
    const std::lock_guard lock(mutex_);
    const auto is_it = [number](const Slot& slot) { return slot.header.number + 1 == number; };
    const auto found = std::ranges::find_if(slots_, is_it);
    (found != slots_.end() && found->header.bytes > piece_ ? pieces_pause_ : all_pause_).begin(settings_.pause);
  }
  free_before(number);
}

void DatagramLink::Pause::begin(std::chrono::milliseconds first) {
  const auto now = Clock::now();
  if (now < until) return;  // The datagram was sent before the pause.
  const bool again = now < until + kLongestPause;
  last = again && last.count() > 0 ? std::min<std::chrono::milliseconds>(2 * last, kLongestPause) : first;
  until = now + last;
}

bool DatagramLink::Pause::lasts() const { return until != Clock::time_point{} && Clock::now() < until; }

/// Reads acknowledgements at the head of the socket's queue, up to the first message. The retransmission thread needs
/// them, because a rank that computes does not read them. Requires that mutex_ is locked.
void DatagramLink::free_acknowledged() {
  std::array<std::byte, kMostPieces * sizeof(Heading)> space;  // The kernel may have joined several.
  for (int i = 0; i < kReadsAtOnce; ++i) {
    const ssize_t got = ::recv(socket_.fd(), space.data(), space.size(), MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC);
    if (got <= 0 || static_cast<std::size_t>(got) > space.size() ||
        !are_pieces(space.data(), space.data() + got, tokens_.received))
      return;
    for (ssize_t at = 0; at < got; at += ssize_t{sizeof(Heading)})
      if (heading_at(space.data() + at).kind != kAcknowledgement) return;
    free_slots_before(heading_at(space.data() + got - sizeof(Heading)).taken);
    ::recv(socket_.fd(), space.data(), space.size(), MSG_DONTWAIT);
  }
}

bool DatagramLink::retransmit(bool all, const std::function<bool(std::string_view)>& say) {
  const std::lock_guard lock(mutex_);
  if (!all) ++tick_;
  if (std::ranges::any_of(slots_, [](const Slot& slot) { return slot.used && !slot.retransmitted; }))
    free_acknowledged();
  bool left = false;
  for (Slot& slot : slots_) {
    if (!slot.used || slot.retransmitted) continue;
    if (all || tick_ - slot.tick >= (slot.header.bytes > piece_ ? kTicksOfPieces : kTicks)) {
      std::string text(reinterpret_cast<const char*>(&slot.header), sizeof slot.header);
      const char* at = reinterpret_cast<const char*>(payload_in(slot.buffer));
      for (std::size_t left_of_it = slot.header.bytes; left_of_it > 0;) {
        const std::size_t length = std::min(piece_, left_of_it);
        text.append(at, length);
        at += length + sizeof(Heading);
        left_of_it -= length;
      }
      slot.retransmitted = say(text);
    }
    left = left || !slot.retransmitted;
  }
  return left;
}

// ---- receiving ----

/// Reads one or several pieces with one system call. Returns false if there are none. Also returns false after 64
/// datagrams that it has dropped or errors, such as the late report that the peer's port is closed.
bool DatagramLink::read(std::uint32_t number) {
  if (incoming_ == nullptr) incoming_ = arrived_.empty_buffer();
  for (int i = 0; i < kDropsAtOnce; ++i) {
    std::byte* at = heading_in(incoming_);
    std::unique_lock lock(mutex_);
    const ssize_t got = ::recv(socket_.fd(), at, kMostJoined, MSG_DONTWAIT);
    lock.unlock();
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    std::byte* const end = at + std::max<ssize_t>(got, 0);
    if (at == end || !are_pieces(at, end, tokens_.received)) {  // A datagram of another process, or an error.
      if (got >= 0) ++dropped_;
      continue;
    }
    heard_ = true;
    at = keep_if_whole(number, at, end);
    std::optional<std::uint32_t> taken;
    for (Heading heading; at < end; at += heading.length()) {
      heading = heading_at(at);
      at += sizeof heading;
      if (heading.kind != kProbe && std::exchange(taken, heading.taken) != heading.taken) free_before(heading.taken);
      if (heading.kind == kMessage) take_in(number, heading, at);
    }
    return true;
  }
  return false;
}

/// Stores the message at `at` without a copy into another buffer, if the read begins with all its pieces. Returns the
/// position behind the message, or `at` if it did not store it.
std::byte* DatagramLink::keep_if_whole(std::uint32_t number, std::byte* at, const std::byte* end) {
  const Heading first = heading_at(at);
  if (first.kind != kMessage || is_before(first.message.number, number) ||
      arrived_.find(first.message.number) != nullptr || !arrived_.has_space(number))
    return at;
  std::size_t come = 0;
  std::byte* behind = at;
  while (behind < end && (behind == at || come < first.message.bytes)) {
    const Heading heading = heading_at(behind);
    if (heading.kind != kMessage || heading.message.number != first.message.number || heading.offset != come) return at;
    come += heading.length();
    behind += sizeof heading + heading.length();
  }
  if (come != first.message.bytes) return at;
  for (std::byte* piece = at; piece < behind;) {
    const Heading heading = heading_at(piece);
    piece += sizeof heading;
    // Moves the piece down over the headings before it.
    if (heading.offset > 0) std::memmove(payload_in(incoming_) + heading.offset, piece, heading.length());
    piece += heading.length();
  }
  free_before(first.taken);
  arrived_.store(first.message, std::exchange(incoming_, nullptr)).come = come;
  return behind;
}

/// Adds a piece that keep_if_whole() did not store to its message.
void DatagramLink::take_in(std::uint32_t number, const Heading& heading, const std::byte* piece) {
  if (heading.length() < heading.message.bytes && !std::exchange(joined_, true)) {
    const int on = 1;  // A kernel without UDP_GRO delivers the pieces one by one.
    std::ignore = ::setsockopt(socket_.fd(), IPPROTO_UDP, kUdpGro, &on, sizeof on);
  }
  if (!is_before(heading.message.number, number)) arrived_.add_piece(number, heading, piece);
}

void DatagramLink::read_ahead(std::uint32_t number) {
  for (int i = 0; i < kReadsAtOnce && read(number); ++i) {
  }
}

std::optional<DatagramLink::Arrived> DatagramLink::take(std::uint32_t number) {
  if (current_.buffer != nullptr) arrived_.reuse(std::move(current_.buffer));
  ReorderBuffer::Entry* found = arrived_.find(number);
  for (int i = 0; found == nullptr || !found->whole(); ++i) {
    if (i == kReadsAtOnce || !read(number)) return std::nullopt;
    found = arrived_.find(number);
  }
  current_ = arrived_.take(*found);
  unacknowledged_bytes_ += current_.header.bytes;
  ++unacknowledged_;
  const bool dear = current_.header.bytes > piece_ &&
                    (only_receives_ || unacknowledged_ > 1);  // A needless retransmission of it is expensive.
  if (unacknowledged_ >= kWindow / 2 || unacknowledged_bytes_ >= kWindowBytes / 2 || dear) acknowledge(number + 1);
  return Arrived{current_.header, payload_in(current_.buffer), current_.retransmitted, current_.lost};
}

void DatagramLink::acknowledge(std::uint32_t taken) {
  std::array<std::byte, sizeof(Heading)> heading;
  if (!write_whole(heading.data(), kAcknowledgement, taken, {})) return;
  clear_unacknowledged();
  only_receives_ = true;
}

bool DatagramLink::receive_retransmitted(std::string_view text, std::uint32_t number) {
  MessageHeader header;
  if (text.size() < sizeof header) return true;
  std::memcpy(&header, text.data(), sizeof header);
  if (text.size() != sizeof header + header.bytes || header.bytes > kLongest) return true;
  if (is_before(header.number, number)) return false;
  read_ahead(number);
  ReorderBuffer::Entry* stored = arrived_.find(header.number);
  if (stored == nullptr && !arrived_.has_space(number)) return true;  // The peer has exceeded its window.
  if (stored == nullptr || !stored->whole()) {
    if (stored == nullptr) stored = &arrived_.store(header, arrived_.empty_buffer());
    std::memcpy(payload_in(stored->buffer), text.data() + sizeof header, header.bytes);
    stored->header = header;
    stored->come = header.bytes;
    stored->lost = true;
  }
  stored->retransmitted = true;
  return true;
}

}  // namespace collectives
