// Implementation of the arena, the memory that the ranks of one host share. The arena is one memfd (anonymous file)
// that has several areas, such as counters and staging memory. This file computes the offset of each area, and it
// creates, joins and leaves arenas.
//
// A mapping is the address range at which a process sees the arena. Each rank keeps one byte of the memfd locked while
// it uses the arena. This byte is called the place of the rank. While the byte is locked, the peers know that the
// process of the rank still runs.
#include "shared_memory/arena.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/environment.hpp"
#include "base/error_text.hpp"
#include "base/fork.hpp"
#include "base/random_word.hpp"
#include "base/round_up.hpp"
#include "base/sealed_file.hpp"
#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Random number of 128 bits that identifies one arena. The creator of the arena sends it to the other ranks of the
/// host. Other processes do not know it.
struct ArenaToken {
  std::uint64_t high = 0, low = 0;
  auto operator<=>(const ArenaToken&) const = default;
};

namespace {

// first word of an arena: "lcarena " in ASCII
constexpr std::uint64_t kMagic = 0x20616e657261636cULL;
constexpr std::string_view kArenaName = "an arena";  // name of the memory in error texts

struct ArenaHeader {
  std::uint64_t magic;
  std::uint64_t protocol;
  ArenaToken token;
  std::uint64_t bytes;
};

/// Fields of a handle. A handle is the text by which the ranks of a host find the arena. `pid` is the process id of the
/// arena's creator. `fd` is the number of the memfd's descriptor in that process.
struct ArenaHandle {
  int pid = 0, fd = -1;
  ArenaToken token;
};

/// Parses a handle, "PID FD TOKEN". TOKEN has 32 hexadecimal digits. Returns nothing for any other text.
std::optional<ArenaHandle> parse_handle(std::string_view text) {
  ArenaHandle handle;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](auto& value, int base, std::size_t digits, char after) {
    const char* const begin = at;
    const char* const limit = begin + std::min<std::size_t>(digits, static_cast<std::size_t>(end - begin));
    const auto [rest, error] = std::from_chars(begin, limit, value, base);
    at = rest;
    if (error != std::errc() || (base == 16 && rest != begin + digits)) return false;
    return after == 0 || (at != end && *at++ == after);
  };
  const bool read = number(handle.pid, 10, 10, ' ') && number(handle.fd, 10, 10, ' ') &&
                    number(handle.token.high, 16, 16, 0) && number(handle.token.low, 16, 16, 0) && at == end;
  if (!read || handle.pid <= 0 || handle.fd < 0) return std::nullopt;
  return handle;
}

[[noreturn]] void fail(std::string_view what) {
  const int error = errno;
  const bool forbidden = error == EACCES || error == EPERM;
  throw Error(Errc::system,
              fmt::format("shared memory: {}: {}{}", what, error_text(error),
                          forbidden ? "; the ranks of a host must be one user's, in one user namespace, and see one "
                                      "another in /proc"
                                    : ""));
}

}  // namespace

namespace {
std::mutex arenas_mutex;  // protects the registries below; fork() waits until no thread holds it

/// All arenas that this process uses.
std::set<const Arena*>& arenas() {
  static auto& all = *new std::set<const Arena*>;  // threads may outlive static objects
  return all;
}

/// Marks the local ranks that no longer hold their locks. A forked child marks none in the arenas of its parent,
/// because it cannot ask for locks there.
void mark_ended(const Arena& arena) noexcept {
  std::uint64_t marked = 0;
  for (int local = 0; local < arena.ranks(); ++local) marked = std::max(marked, arena.ended(local));
  for (int local = 0; local < arena.ranks(); ++local) {
    if (arena.ended(local) != 0 || arena.alive(local)) continue;
    RankBlock& block = arena.block(local);
    block.ended.value.store(marked + 1, std::memory_order_release);
    std::uint64_t unknown = 0;  // a rank that has left keeps kHasLeft
    block.departed.value.compare_exchange_strong(unknown, kHasEnded, std::memory_order_release);
  }
}
}  // namespace

struct Arena::Mapping {
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  ArenaToken token;
  Descriptor file;

  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (listed) {
      const std::lock_guard lock(arenas_mutex);
      registry().erase(token);
    }
    if (base != nullptr) ::munmap(base, bytes);
  }

  /// Arenas that this process has created, by token. Ranks of one process find their mapping here.
  static std::map<ArenaToken, std::weak_ptr<Mapping>>& registry() {
    static auto& all = *new std::map<ArenaToken, std::weak_ptr<Mapping>>;  // threads may outlive static objects
    return all;
  }
  static void list(const std::shared_ptr<Mapping>& mapping) {
    hold_over_forks<arenas_mutex>();
    const std::lock_guard lock(arenas_mutex);
    registry().emplace(mapping->token, mapping);
    mapping->creator = ::getpid();
    mapping->listed = true;
  }
  /// Returns the mapping, or null if this process has created no arena with this token. A forked child has a copy of
  /// its parent's registry, but has created none of these arenas.
  static std::shared_ptr<Mapping> find(const ArenaToken& token) {
    hold_over_forks<arenas_mutex>();
    const std::lock_guard lock(arenas_mutex);
    const auto found = registry().find(token);
    auto mapping = found == registry().end() ? nullptr : found->second.lock();
    return mapping != nullptr && mapping->creator == ::getpid() ? mapping : nullptr;
  }

  /// Opens and maps the arena of another process. Throws Error{system} if `fd` of `pid` is no arena of `bytes` bytes.
  static std::shared_ptr<Mapping> open(int pid, int fd, std::size_t bytes);

  bool listed = false;
  pid_t creator = 0;  // process that has listed the mapping
  void map() {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.fd(), 0);
    if (at == MAP_FAILED) refuse_mapping(bytes, kArenaName);
    base = static_cast<std::byte*>(at);
  }
};

std::shared_ptr<Arena::Mapping> Arena::Mapping::open(int pid, int fd, std::size_t bytes) {
  auto mapping = std::make_shared<Mapping>();
  OpenedSealedFile opened = open_sealed_file(pid, fd, O_RDWR);
  mapping->file = std::move(opened.file);
  if (!mapping->file && errno != EINVAL) fail(fmt::format("opening the arena of process {}", pid));
  ArenaHeader header{};
  const bool arena = mapping->file &&
                     ::pread(mapping->file.fd(), &header, sizeof header, 0) == ssize_t{sizeof header} &&
                     header.magic == kMagic && header.bytes == opened.bytes;
  if (!arena)
    throw Error(Errc::system, fmt::format("shared memory: /proc/{}/fd/{} is not the arena that was offered", pid, fd));
  if (header.protocol != kProtocol)
    throw Error(Errc::system, fmt::format("shared memory: the arena of process {} is of version {}, this library's of "
                                          "version {}: let all ranks use the same library",
                                          pid, header.protocol, kProtocol));
  if (header.bytes != bytes)
    throw Error(Errc::system, "shared memory: the ranks of this host disagree on the arena's shape");
  mapping->bytes = bytes;
  mapping->token = header.token;
  mapping->map();
  return mapping;
}

Arena::Arena(std::shared_ptr<Mapping> mapping, const ArenaShape& shape, int self)
    : mapping_(std::move(mapping)), shape_(shape), self_(self) {
  const auto ranks = static_cast<std::size_t>(shape.ranks);
  const std::size_t page = 4096;
  abort_at_ = round_up(sizeof(ArenaHeader), kPolledBytes);
  searched_at_ = abort_at_ + sizeof(AbortBlock);
  blocks_at_ = round_up(searched_at_ + sizeof(PolledWord), page);
  member_calls_at_ = round_up(blocks_at_ + ranks * sizeof(RankBlock), page);
  host_collective_blocks_at_ = round_up(member_calls_at_ + ranks * ranks * sizeof(MemberCall), page);
  const std::size_t places = ranks * static_cast<std::size_t>(shape.subgroups);
  directories_at_ = round_up(host_collective_blocks_at_ + places * sizeof(HostCollectiveBlock), page);
  gpu_blocks_at_ = round_up(directories_at_ + ranks * kSegmentTables * kSegmentRecords * sizeof(SegmentRecord), page);
  details_at_ = round_up(gpu_blocks_at_ + ranks * sizeof(GpuBlock), page);
  lines_at_ = round_up(details_at_ + ranks * kRecords * sizeof(DetailRecord), page);
  const std::size_t lines = std::max<std::size_t>(1, (shape.inline_bytes + kLinePayload - 1) / kLinePayload);
  lines_bytes_ = round_up(lines * kLineBytes, kPolledBytes);
  staging_at_ = round_up(lines_at_ + places * kCollectivesAhead * lines_bytes_, page);
  // Even a short chunk has space for an element of every rank.
  staging_bytes_ = kLongestChunks * round_up(std::max(shape.chunk_bytes, ranks * UserOp::kMaxElementBytes), page);
  channels_at_ = staging_at_ + places * staging_bytes_;
  frame_stride_ = round_up(kUnitHeader + shape.frame_bytes, kPolledBytes);
  channel_stride_ = round_up(sizeof(ChannelWords) + kFrames * frame_stride_, page);
  messages_at_ = channels_at_ + ranks * ranks * channel_stride_;
  message_stride_ = sizeof(MessageChannel) + long_ring_bytes(ranks);
  total_ = messages_at_ + ranks * ranks * message_stride_;
}

std::unique_ptr<Arena> Arena::create(const ArenaShape& shape) {
  auto mapping = std::make_shared<Mapping>();
  std::unique_ptr<Arena> arena(new Arena(mapping, shape, 0));
  mapping->bytes = arena->total_;
  // The kernel allocates a page at its first access. The kernel kills a process that thereby exceeds the memory limit
  // of its control group. The limit is therefore checked here. The limit must allow all pages except those of the
  // channels, which most programs never access.
  if (const AvailableMemory available = available_memory(); available.bytes < arena->channels_at_)
    refuse_memory(arena->channels_at_, kArenaName, available.bound);
  SealedFile made = make_sealed_file(kArenaName, "collectives", mapping->bytes);
  if (!made.file)
    refuse_memory(mapping->bytes, kArenaName, made.refused + "; let the container or seccomp filter permit it");
  mapping->file = std::move(made.file);
  mapping->map();
  mapping->token = {random_word(), random_word()};

  // Fresh pages are zero, the initial value of every counter. Objects with a constructor are constructed here, once.
  arena->base_ = mapping->base;
  new (mapping->base) ArenaHeader{kMagic, kProtocol, mapping->token, mapping->bytes};
  new (mapping->base + arena->abort_at_) AbortBlock;
  new (mapping->base + arena->searched_at_) PolledWord;
  for (int local = 0; local < shape.ranks; ++local) {
    new (&arena->block(local)) RankBlock;
    for (int subgroup = 0; subgroup < shape.subgroups; ++subgroup)
      new (&arena->host_collective_block(subgroup, local)) HostCollectiveBlock;
  }
  arena->hold_place();
  Mapping::list(mapping);
  return arena;
}

std::string Arena::handle() const {
  return fmt::format("{} {} {:016x}{:016x}", ::getpid(), mapping_->file.fd(), mapping_->token.high,
                     mapping_->token.low);
}

std::unique_ptr<Arena> Arena::join(std::string_view handle, const ArenaShape& shape, int self) {
  const std::optional<ArenaHandle> from = parse_handle(handle);
  if (!from) throw Error(Errc::system, "shared memory: not the handle of an arena");
  const std::size_t bytes = Arena(nullptr, shape, self).total_;
  std::shared_ptr<Mapping> mapping = Mapping::find(from->token);
  if (mapping == nullptr) mapping = Mapping::open(from->pid, from->fd, bytes);
  if (mapping->token != from->token)
    throw Error(Errc::system,
                fmt::format("shared memory: /proc/{}/fd/{} is not the arena that was offered", from->pid, from->fd));
  if (mapping->bytes != bytes)
    throw Error(Errc::system, "shared memory: the ranks of this host disagree on the arena's shape");
  std::unique_ptr<Arena> arena(new Arena(mapping, shape, self));
  arena->base_ = mapping->base;
  arena->hold_place();
  return arena;
}

Arena::~Arena() {
  {
    const std::lock_guard lock(arenas_mutex);
    arenas().erase(this);
  }
  if (place_.fd() < 0) return;  // no lock is held, or this is a child and the lock is its parent's
  block(self_).departed.value.store(kHasLeft, std::memory_order_release);
}

void Arena::hold_place() {
  RankBlock& mine = block(self_);
  probe_ = mapping_->token.low + static_cast<std::uint64_t>(self_);
  mine.probe.store(probe_, std::memory_order_release);
  mine.probe_address.store(reinterpret_cast<std::uintptr_t>(&probe_), std::memory_order_release);
  mine.process.store(::getpid(), std::memory_order_release);
  // A lock belongs to an open file description, so every rank opens the file anew.
  const bool opened = place_.open(fmt::format("/proc/self/fd/{}", mapping_->file.fd()), O_RDWR);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = self_;
  lock.l_len = 1;
  if (opened && ::fcntl(place_.fd(), F_OFD_SETLK, &lock) == 0) {
    hold_over_forks<arenas_mutex>();
    const std::lock_guard guard(arenas_mutex);
    arenas().insert(this);
    return;
  }
  const int error = errno;
  place_.close();
  errno = error;
  fail(fmt::format("taking place {}", self_));
}

bool Arena::alive(int local) const noexcept {
  if (local == self_) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = local;
  lock.l_len = 1;
  return ::fcntl(place_.fd(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

void Arena::search_ended(std::chrono::nanoseconds now, std::chrono::nanoseconds every) const noexcept {
  const auto begun = static_cast<std::uint64_t>(now.count());
  // Time of the coarse clock at which the latest search began, in nanoseconds.
  std::atomic<std::uint64_t>& searched = reinterpret_cast<PolledWord*>(base_ + searched_at_)->value;
  std::uint64_t latest = searched.load(std::memory_order_relaxed);
  // A time in the future comes from another time namespace. It delays no search.
  if (latest <= begun && begun - latest < static_cast<std::uint64_t>(every.count())) return;
  const bool is_first = searched.compare_exchange_strong(latest, begun, std::memory_order_relaxed);
  if (!is_first && every.count() > 0) return;
  mark_ended(*this);
}

void search_ended_in_all_arenas() noexcept {
  const std::lock_guard lock(arenas_mutex);
  for (const Arena* const arena : arenas()) mark_ended(*arena);
}

}  // namespace collectives
