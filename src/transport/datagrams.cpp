#include "transport/datagrams.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <new>
#include <thread>

#include "collectives/error.hpp"
#include "fork.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// What a network of large packets (9000 bytes) carries; the usual one carries 1500.
constexpr std::size_t kLargestPacket = 9000;
constexpr std::size_t kUsualPacket = 1500;
constexpr std::size_t kHeadings4 = 20 + 8, kHeadings6 = 40 + 8;  // of IP and UDP
constexpr auto kLongestPause = std::chrono::minutes(1);

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  in_port_t& port() {
    return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(storage).sin_port;
  }
};

[[noreturn]] void refuse(const char* what) { throw Error(Errc::system, what + (": " + tcp::error_text(errno))); }

Address address_of(const tcp::Socket& socket, decltype(&::getsockname) ask) {
  Address address;
  if (ask(socket.fd(), address.get(), &address.bytes) != 0) refuse("getsockname");
  return address;
}

}  // namespace

Frame make_frame(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  Frame frame(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)));
  if (frame == nullptr) throw std::bad_alloc();
  return frame;
}

DatagramLink::DatagramLink(const tcp::Socket& stream, std::uint64_t token, const DatagramSettings& settings)
    : token_(token), settings_(settings) {
  Address mine = address_of(stream, ::getsockname);
  mine.port() = 0;
  socket_ = tcp::Socket(::socket(mine.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket_.fd() < 0) refuse("socket");
  if (mine.storage.ss_family == AF_INET6) tcp::set_option(socket_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket_.fd(), mine.get(), mine.bytes) != 0) refuse("bind");
  port_ = ntohs(address_of(socket_, ::getsockname).port());
  stored_.reserve(kWindow);
  spare_.reserve(2 * kWindow);
}

void DatagramLink::connect(const tcp::Socket& stream, std::uint16_t port) {
  Address theirs = address_of(stream, ::getpeername);
  theirs.port() = htons(port);
  if (::connect(socket_.fd(), theirs.get(), theirs.bytes) != 0) refuse("connect");
  const bool six = theirs.storage.ss_family == AF_INET6;
  // A packet that would have to be cut is refused, and goes by the stream. A socket of the sixth version may lead to an
  // address of the fourth.
  if (six) tcp::set_option(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  tcp::set_option(socket_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  int packet = 0;
  socklen_t bytes = sizeof packet;
  if (::getsockopt(socket_.fd(), six ? IPPROTO_IPV6 : IPPROTO_IP, six ? IPV6_MTU : IP_MTU, &packet, &bytes) != 0)
    packet = kUsualPacket;
  const std::size_t headings = (six ? kHeadings6 : kHeadings4) + sizeof(Heading);
  longest_ = std::clamp<std::size_t>(static_cast<std::size_t>(packet), headings, kLargestPacket) - headings;
}

// ---- getting to know each other ----

void DatagramLink::probe() {
  const Buffer buffer = make_buffer(longest_);
  std::memset(payload_in(buffer), 0, longest_);
  write(heading_in(buffer), kProbe, 0, {.bytes = static_cast<std::uint32_t>(longest_)});
}

bool DatagramLink::heard() {
  if (!heard_) read_ahead(kFirstNumber);
  return heard_;
}

// ---- sending ----

/// False when the kernel does not take it.
bool DatagramLink::write(std::byte* heading, Kind kind, std::uint32_t taken, const MessageHeader& message) noexcept {
  const Heading written{token_, kind, taken, message};
  std::memcpy(heading, &written, sizeof written);
  return ::send(socket_.fd(), heading, sizeof written + message.bytes, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

/// Under the mutex.
DatagramLink::Slot* DatagramLink::free_slot() {
  const auto found = std::ranges::find(slots_, false, &Slot::used);
  return found == slots_.end() ? nullptr : &*found;
}

bool DatagramLink::send(const MessageHeader& header, const std::byte* data, std::uint32_t taken) {
  if (!allowed_ || header.bytes > longest_) return false;
  if (paused_until_ != Clock::time_point{} && Clock::now() < paused_until_) return false;
  std::unique_lock lock(mutex_);
  Slot* slot = free_slot();
  if (slot == nullptr) {
    lock.unlock();
    read_ahead(taken);  // acknowledgements may be among it
    lock.lock();
    slot = free_slot();
    if (slot == nullptr) return false;
  }
  if (slot->buffer == nullptr) slot->buffer = make_buffer(longest_);
  if (header.bytes > 0) std::memcpy(payload_in(slot->buffer), data, header.bytes);
  slot->header = header;
  slot->tick = tick_;
  slot->retransmitted = false;
  const bool lost = settings_.lose_every > 0 && (sent_ + 1) % settings_.lose_every == 0;
  if (!lost && !write(heading_in(slot->buffer), kMessage, taken, header)) return false;
  slot->used = true;
  ++sent_;
  owed_ = 0;
  return true;
}

void DatagramLink::free_before(std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  for (Slot& slot : slots_) slot.used = slot.used && !is_before(slot.header.number, number);
}

void DatagramLink::acknowledged(std::uint32_t number, bool lost) {
  free_before(number);
  if (!lost) return;
  const auto now = Clock::now();
  if (now < paused_until_) return;  // it was on its way already
  const bool again = now < paused_until_ + kLongestPause;
  pause_ =
      again && pause_.count() > 0 ? std::min<std::chrono::milliseconds>(2 * pause_, kLongestPause) : settings_.pause;
  paused_until_ = now + pause_;
}

bool DatagramLink::retransmit(bool all, const std::function<bool(std::string_view)>& say) {
  const std::lock_guard lock(mutex_);
  if (!all) ++tick_;
  bool left = false;
  for (Slot& slot : slots_) {
    if (!slot.used || slot.retransmitted) continue;
    if (all || tick_ - slot.tick >= 2) {
      std::string text(reinterpret_cast<const char*>(&slot.header), sizeof slot.header);
      text.append(reinterpret_cast<const char*>(payload_in(slot.buffer)), slot.header.bytes);
      slot.retransmitted = say(text);
    }
    left = left || !slot.retransmitted;
  }
  return left;
}

// ---- receiving ----

DatagramLink::Stored* DatagramLink::find(std::uint32_t number) {
  const auto found = std::ranges::find(stored_, number, [](const Stored& one) { return one.header.number; });
  return found == stored_.end() ? nullptr : &*found;
}

DatagramLink::Buffer DatagramLink::empty_buffer() {
  if (spare_.empty()) return make_buffer(kLargestPacket);
  Buffer buffer = std::move(spare_.back());
  spare_.pop_back();
  return buffer;
}

/// The next message that is new, to `incoming_`; false when there is none.
bool DatagramLink::read(std::uint32_t number, MessageHeader& header) {
  if (incoming_ == nullptr) incoming_ = empty_buffer();
  for (int errors = 0; errors < 4;) {  // such as a refusal by a port that is closed, told late
    const ssize_t got =
        ::recv(socket_.fd(), heading_in(incoming_), sizeof(Heading) + kLargestPacket, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (got < 0) ++errors;
    Heading heading;
    if (got < static_cast<ssize_t>(sizeof heading)) continue;
    std::memcpy(&heading, heading_in(incoming_), sizeof heading);
    header = heading.message;
    if (heading.token != token_ || header.bytes > kLargestPacket ||
        static_cast<std::size_t>(got) != sizeof heading + (heading.kind == kAcknowledgement ? 0 : header.bytes))
      continue;  // a stranger's
    heard_ = true;
    if (heading.kind != kProbe) free_before(heading.taken);
    if (heading.kind == kMessage && !is_before(header.number, number) && find(header.number) == nullptr) return true;
  }
  return false;
}

DatagramLink::Stored& DatagramLink::store(const MessageHeader& header, Buffer buffer) {
  return stored_.emplace_back(Stored{header, std::move(buffer)});
}

void DatagramLink::read_ahead(std::uint32_t number) {
  for (MessageHeader header; read(number, header);) store(header, std::exchange(incoming_, empty_buffer()));
}

std::optional<DatagramLink::Arrived> DatagramLink::take(std::uint32_t number) {
  if (current_.buffer != nullptr) spare_.push_back(std::move(current_.buffer));
  Stored* found = stored_.empty() ? nullptr : find(number);
  if (found != nullptr) {
    current_ = std::move(*found);
    *found = std::move(stored_.back());
    stored_.pop_back();
  } else {
    for (MessageHeader header;;) {
      if (!read(number, header)) return std::nullopt;
      if (header.number == number) {
        current_ = {header, std::move(incoming_)};
        break;
      }
      store(header, std::exchange(incoming_, empty_buffer()));
    }
  }
  if (++owed_ >= kWindow / 2) acknowledge(number + 1);
  return Arrived{current_.header, payload_in(current_.buffer), current_.retransmitted, current_.lost};
}

void DatagramLink::acknowledge(std::uint32_t taken) {
  std::array<std::byte, sizeof(Heading)> heading;
  write(heading.data(), kAcknowledgement, taken, {});
  owed_ = 0;
}

bool DatagramLink::hear(std::string_view text, std::uint32_t number) {
  MessageHeader header;
  if (text.size() < sizeof header) return true;
  std::memcpy(&header, text.data(), sizeof header);
  if (text.size() != sizeof header + header.bytes || header.bytes > kLargestPacket) return true;
  if (is_before(header.number, number)) return false;
  read_ahead(number);
  Stored* stored = find(header.number);
  if (stored == nullptr) {
    stored = &store(header, empty_buffer());
    std::memcpy(payload_in(stored->buffer), text.data() + sizeof header, header.bytes);
    stored->lost = true;
  }
  stored->retransmitted = true;
  return true;
}

// ---- the thread ----

static constinit std::mutex of_the_process;  // which Thread there is; what it works on has a mutex of its own

/// It lasts as long as somebody has it.
class Retransmitter::Thread {
 public:
  static std::shared_ptr<Thread> of_this_process() {
    hold_over_forks<of_the_process>();
    const std::lock_guard lock(of_the_process);
    static std::weak_ptr<Thread>& known = *new std::weak_ptr<Thread>;
    std::shared_ptr<Thread> thread = known.lock();
    // A child has its parent's object, but not the thread.
    if (thread == nullptr || !thread->maker_.here()) known = thread = std::make_shared<Thread>();
    return thread;
  }

  Thread() {
    sigset_t all, before;
    sigfillset(&all);  // signals are the program's
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw;
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Thread() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    woken_.notify_one();
    thread_.join();
  }

  void add(Retransmitter& one) {
    {
      const std::lock_guard lock(mutex_);
      watched_.push_back(&one);
    }
    woken_.notify_one();
  }
  void remove(Retransmitter& one) {
    const std::lock_guard lock(mutex_);
    std::erase(watched_, &one);
  }
  void wake(Retransmitter& one) {
    {
      const std::lock_guard lock(mutex_);
      one.rests_ = false;
    }
    woken_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      bool left = false;
      for (Retransmitter* one : watched_) left = one->look() || left;
      const auto all_rest = [this] {
        return std::ranges::all_of(watched_, [](const Retransmitter* one) { return one->rests_.load(); });
      };
      if (!left) woken_.wait(lock, [&] { return over_ || !all_rest(); });
      woken_.wait_for(lock, DatagramLink::kTick, [this] { return over_; });
    }
  }

  const Maker maker_;
  std::mutex mutex_;  // of the list; held during looks, so that remove() waits for them
  std::condition_variable woken_;
  std::vector<Retransmitter*> watched_;
  bool over_ = false;
  std::thread thread_;
};

Retransmitter::Retransmitter(std::function<bool()> look) : look_(std::move(look)), thread_(Thread::of_this_process()) {
  thread_->add(*this);
}

Retransmitter::~Retransmitter() { thread_->remove(*this); }

void Retransmitter::wake() { thread_->wake(*this); }

/// Whether it is to be looked at again.
bool Retransmitter::look() {
  // The flag goes up before the look: who sends afterwards sees it, and what was sent before is seen.
  if (rests_.exchange(true)) return false;
  bool left = true;
  try {
    left = look_();
  } catch (const std::exception&) {
  }
  if (left) rests_ = false;
  return left;
}

}  // namespace collectives
