// Implementation of MemberExchange, by which some ranks of a communicator exchange texts without the other ranks. These
// ranks are the members. They exchange texts in order to make a new communicator.
//
// Members of one host write their texts into shared memory. Each rank has space for one piece of 4 KiB. Each member
// counts the pieces that it has written (`shown`) and read (`taken`). A member writes its next piece when all other
// members of the host have read its previous piece. Members of different hosts send their texts in control messages,
// which travel between hosts beside the data of collectives.
#include "communicator/member_exchange.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <sstream>
#include <utility>

#include "base/coarse_clock.hpp"
#include "base/reported_wait.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

constexpr std::size_t kPieceBytes = kMemberPieceWords * sizeof(std::uint64_t);
constexpr std::size_t kListBytes = kMemberListWords * sizeof(std::uint64_t);

// Time from the discovery that a member has left the communicator until this rank reports it. During this time, this
// rank looks for a member whose process has ended. This end may be the reason why the first member has left. The time
// must be long enough for the host of the ended process to close its connections.
constexpr auto kLookForEnd = std::chrono::milliseconds(300);

std::uint64_t time_now() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

void store_text(std::span<std::atomic<std::uint64_t>> words, std::string_view text) {
  for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
    words[at / sizeof word].store(word, std::memory_order_release);
  }
}

std::string load_text(std::span<const std::atomic<std::uint64_t>> words, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = words[at / sizeof word].load(std::memory_order_acquire);
    std::memcpy(text.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return text;
}

/// Stores a list of ranks as a text that ends with a zero byte. Cuts a list that is longer than `words`.
void store_list(std::span<std::atomic<std::uint64_t>> words, std::string_view list) {
  store_text(words, std::string(list.substr(0, kListBytes - 1)) + '\0');
}

std::string load_list(std::span<const std::atomic<std::uint64_t>> words) {
  return load_text(words, kListBytes).c_str();
}

/// Returns whether a list of ranks as text, such as "0,3,1", contains a rank.
bool list_contains(std::string_view list, Rank rank) {
  return fmt::format(",{},", list).find(fmt::format(",{},", rank)) != std::string::npos;
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  const std::uint64_t hash = hash_bytes(text.data(), text.size(), seed);
  return hash != 0 ? hash : 1;  // 0 means none
}

}  // namespace

MemberExchange::MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                               std::vector<Rank> members, std::string_view name, CreationState& state)
    : view_(view),
      arena_(arena),
      failure_detector_(failure_detector),
      guard_(std::move(guard)),
      members_(std::move(members)),
      label_(name.empty() ? "create_group" : fmt::format("create_group \"{}\"", name)),
      list_(fmt::format("{}", fmt::join(members_, ","))),
      name_(hash_text(name, 1)),
      creation_(hash_text(list_, name_)),
      state_(state),
      begun_(time_now()),
      calls_(failure_detector.arrivals().arrived()),
      read_from_(view_.world.members.size()),
      call_numbers_(view_.world.members.size()) {
  for (const Rank rank : members_)
    if (rank != view_.world.self) (is_here(rank) ? here_ : remote_).push_back(rank);
  drop_old_messages();
  MemberBlock& mine = block_of(view_.world.self);
  mine.shown.value.store(0, std::memory_order_release);
  mine.taken.value.store(0, std::memory_order_relaxed);
  mine.name.store(name_, std::memory_order_relaxed);
  mine.call_number.fetch_add(1, std::memory_order_relaxed);
  store_list(mine.list, list_);
  mine.creation.value.store(creation_, std::memory_order_release);
}

/// Deletes stored control messages of members that have sent a message with round 0, which means that they gave up.
/// Keeps refusals that can concern this call or a later one.
void MemberExchange::drop_old_messages() {
  const auto lock = guard_();
  failure_detector_.check_control();
  if (control() == nullptr) return;
  auto& messages = control()->member_messages();
  std::vector<bool> is_making(view_.world.members.size());  // by rank: whether it makes the creation of this rank now
  for (std::size_t i = messages.size(); i-- > 0;) {
    const auto& [from, end] = messages[i];
    if (end.round != 0) {
      if (end.creation == creation_) is_making[static_cast<std::size_t>(from)] = true;
      continue;
    }
    const bool is_old =
        end.name == name_ && (state_.failed.contains(name_) || is_making[static_cast<std::size_t>(from)]);
    const bool is_kept = !is_old && read_refusal(from, end).has_value();
    const auto last = messages.begin() + static_cast<std::ptrdiff_t>(i) + (is_kept ? 0 : 1);
    const auto is_dropped = [rank = from, creation = end.creation](const auto& one) {
      return one.first == rank && one.second.creation == creation;
    };
    const auto kept = std::remove_if(messages.begin(), last, is_dropped);
    messages.erase(kept, last);
    i = std::min(i, messages.size());
  }
}

MemberExchange::~MemberExchange() {
  MemberBlock& mine = block_of(view_.world.self);
  mine.shown.value.store(0, std::memory_order_release);
  mine.creation.value.store(0, std::memory_order_release);
  const auto lock = guard_();
  try {
    note_end();
    ControlProtocol* const messages_of_hosts = control();
    if (messages_of_hosts == nullptr) return;
    std::erase_if(messages_of_hosts->member_messages(), [&](const auto& one) {
      const auto& [from, message] = one;
      return message.creation == creation_ ||
             (complete_ && message.round == 0 && std::ranges::count(remote_, from) != 0);
    });
    if (!complete_) send_to_remote(0, refusal_);
  } catch (const std::exception&) {  // if this message is not sent, members of other hosts wait until their deadline
  }
}

/// Stores the result of this call in the state of the communicator.
void MemberExchange::note_end() {
  if (!complete_) {
    state_.failed.insert(name_);
    return;
  }
  state_.failed.erase(name_);
  for (const Rank rank : members_) state_.made[rank] = {begun_, call_numbers_[static_cast<std::size_t>(rank)]};
}

std::optional<MemberExchange::LostMember> MemberExchange::find_lost(bool search) const {
  const auto lock = guard_();
  failure_detector_.check_control();
  if (ControlProtocol* const of_hosts = control()) of_hosts->note_lost();
  arena_.search_ended(coarse_now(), std::chrono::milliseconds(search ? 0 : 10));
  std::optional<LostMember> leaver;
  for (const Rank rank : members_) {
    if (rank == view_.world.self) continue;
    LostMember member{rank, {}, false};
    if (!is_here(rank)) {
      member.how = control()->end_of(rank);
      member.left = control()->has_left(rank);
    } else if (const int local = view_.local_of(rank); arena_.ended(local) != 0) {
      const RankBlock& block = arena_.block(local);
      member.left = block.departed.value.load() == kHasLeft;
      member.how = fmt::format("{} after its call #{}", member.left ? "it left the communicator" : "its process ended",
                               block.completed.value.load());
    }
    if (member.how.empty()) continue;
    if (!member.left) return member;
    if (!leaver) leaver = std::move(member);
  }
  return leaver;
}

void MemberExchange::throw_lost(const LostMember& lost) const {
  throw Error(Errc::peer_lost, fmt::format("{}: rank {} was lost: {}", label_, lost.rank, lost.how), view_.world.self,
              lost.rank, "create_group");
}

void MemberExchange::check() {
  const auto lost = find_lost(leaver_found_.has_value());
  if (!lost) return;
  const auto now = std::chrono::steady_clock::now();
  if (!leaver_found_) leaver_found_ = now;
  if (!lost->left || now - *leaver_found_ >= kLookForEnd) throw_lost(*lost);
}

template <class Done>
void MemberExchange::wait_for(const std::vector<Rank>& ranks, Deadline deadline, Done&& done) {
  const auto missing = [&] {
    std::vector<Rank> found;
    std::ranges::copy_if(ranks, std::back_inserter(found), [&](Rank rank) {
      const bool is_missing = !done(rank);
      if (!is_missing) read_from_[static_cast<std::size_t>(rank)] = true;
      return is_missing;
    });
    std::ranges::sort(found);
    return found;
  };
  const auto awaited = [&] {
    ReportedWait::Awaited state{missing(), {}, {}};
    for (const Rank rank : state.ranks)
      if (is_here(rank) && block_of(rank).creation.value.load(std::memory_order_acquire) != 0)
        state.last_answer =
            fmt::format("rank {} makes a communicator of ranks {}{}", rank, load_list(block_of(rank).list),
                        block_of(rank).name.load(std::memory_order_relaxed) == name_ ? "" : " with another name");
    return state;
  };
  ReportedWait waiting("take part in " + label_, view_.world.self, deadline, awaited, [this] {
    check();
    check_lists();
  });
  for (Backoff backoff; !missing().empty(); backoff.wait()) {
    if (waiting.is_over()) {
      if (const auto lost = find_lost(true)) throw_lost(*lost);
      throw waiting.timeout();
    }
    if (!remote_.empty()) {
      const auto lock = guard_();
      failure_detector_.check_control();
    }
  }
}

// ---- inside the host ----

void MemberExchange::show(std::string_view left) {
  MemberBlock& mine = block_of(view_.world.self);
  mine.left.store(left.size(), std::memory_order_relaxed);
  store_text(mine.piece, left.substr(0, kPieceBytes));
  mine.shown.value.store(++pieces_, std::memory_order_release);
}

bool MemberExchange::read_piece(Rank rank, std::string& text, bool& is_last) {
  const MemberBlock& block = block_of(rank);
  const auto shows = [&] {
    return block.creation.value.load(std::memory_order_acquire) == creation_ &&
           block.shown.value.load(std::memory_order_acquire) == pieces_;
  };
  if (!shows()) return false;
  const std::size_t left = block.left.load(std::memory_order_relaxed);
  const std::string piece = load_text(block.piece, std::min(left, kPieceBytes));
  const std::uint64_t call_number = block.call_number.load(std::memory_order_acquire);

  if (!shows()) return false;
  call_numbers_[static_cast<std::size_t>(rank)] = call_number;
  text += piece;
  if (left > kPieceBytes) is_last = false;
  return true;
}

void MemberExchange::gather_here(std::string_view mine, std::vector<std::string>& all, Deadline deadline) {
  MemberBlock& block = block_of(view_.world.self);
  for (bool is_last = false; !is_last;) {
    is_last = mine.size() <= kPieceBytes;
    show(mine);
    mine.remove_prefix(std::min(mine.size(), kPieceBytes));
    std::vector<bool> read(all.size());
    wait_for(here_, deadline, [&](Rank rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (!read[at]) read[at] = read_piece(rank, all[at], is_last);
      return static_cast<bool>(read[at]);
    });
    block.taken.value.store(pieces_, std::memory_order_release);
    wait_for(here_, deadline, [&](Rank rank) {  // a member that has cleared its creation number has read all pieces
      const MemberBlock& other = block_of(rank);
      return other.creation.value.load(std::memory_order_acquire) != creation_ ||
             other.taken.value.load(std::memory_order_acquire) >= pieces_;
    });
  }
}

// ---- between hosts ----

void MemberExchange::send_to_remote(std::uint64_t round, std::string_view text) {
  const MemberMessage message{creation_, name_, round, list_, std::string(text)};
  for (const Rank rank : remote_) control()->send(rank, message);
}

void MemberExchange::gather_remote(std::vector<std::string>& all, Deadline deadline) {
  std::vector<bool> read(all.size());
  wait_for(remote_, deadline, [&](Rank rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (read[at]) return true;
    const auto lock = guard_();
    auto& messages = control()->member_messages();
    const auto found = std::ranges::find_if(messages, [&](const auto& one) {
      return one.first == rank && one.second.creation == creation_ && one.second.round == round_;
    });
    if (found == messages.end()) return false;
    all[at] = std::move(found->second.text);
    messages.erase(found);
    read[at] = true;
    return true;
  });
}

std::vector<std::string> MemberExchange::all_gather(std::string_view mine, Deadline deadline) {
  std::vector<std::string> all(view_.world.members.size());
  all[static_cast<std::size_t>(view_.world.self)] = mine;
  ++round_;
  if (!remote_.empty()) {
    const auto lock = guard_();
    send_to_remote(round_, mine);
  }
  gather_here(mine, all, deadline);
  gather_remote(all, deadline);
  return all;
}

// ---- other lists ----

void MemberExchange::check_lists() {
  check_lists_here();
  if (control() != nullptr) check_remote_lists();
}

void MemberExchange::check_lists_here() {
  for (const Rank rank : here_) {
    const MemberBlock& block = block_of(rank);
    const std::uint64_t creation = block.creation.value.load(std::memory_order_acquire);
    if (!read_from_[static_cast<std::size_t>(rank)] && creation != 0 && creation != creation_ &&
        block.name.load(std::memory_order_acquire) == name_) {
      const std::string list = load_list(block.list);
      const auto made = state_.made.find(rank);
      const bool is_made =
          made != state_.made.end() && made->second.call_number == block.call_number.load(std::memory_order_acquire);
      const bool is_valid = block.creation.value.load(std::memory_order_acquire) == creation;
      if (is_valid && !is_made && list_contains(list, view_.world.self)) refuse_list(rank, list);
    }
    for (const RefusedList& record : block.refused)
      if (const auto refusal = read_refusal(rank, record)) throw_if_concerned(*refusal);
  }
}

void MemberExchange::check_remote_lists() {
  const auto lock = guard_();
  auto& messages = control()->member_messages();
  const auto drop_creation_of = [&](Rank rank, std::uint64_t creation) {
    std::erase_if(messages, [&](const auto& one) { return one.first == rank && one.second.creation == creation; });
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto& [from, message] = messages[i];
    if (message.name != name_ || std::ranges::count(remote_, from) == 0) continue;
    if (const auto refusal = read_refusal(from, message)) {
      throw_if_concerned(*refusal);
    } else if (message.round != 0 && message.creation != creation_ && !read_from_[static_cast<std::size_t>(from)] &&
               list_contains(message.list, view_.world.self)) {
      const auto [peer, other] = messages[i];
      drop_creation_of(peer, other.creation);
      refuse_list(peer, other.list);
    }
  }
}

std::optional<MemberExchange::Refusal> MemberExchange::read_refusal(Rank from, const RefusedList& record) const {
  const std::uint64_t number = record.number.load(std::memory_order_acquire);
  if (number == 0 || record.name.load(std::memory_order_acquire) != name_) return std::nullopt;
  const std::uint64_t creation = record.creation.load(std::memory_order_acquire);
  const std::uint64_t time = record.time.load(std::memory_order_acquire);
  const bool is_making = block_of(from).creation.value.load(std::memory_order_acquire) == creation_;
  if (time >= begun_) {
    if (is_making && creation != creation_) return std::nullopt;
  } else {
    const auto made = state_.made.find(from);
    if (is_making || record.calls.load(std::memory_order_acquire) < calls_ || state_.failed.contains(name_) ||
        (made != state_.made.end() && time < made->second.begun))
      return std::nullopt;
  }
  Refusal refusal{from, creation, static_cast<Rank>(record.peer.load(std::memory_order_acquire)),
                  load_list(record.list), load_list(record.other)};
  if (record.number.load(std::memory_order_acquire) != number) return std::nullopt;
  return refusal;
}

std::optional<MemberExchange::Refusal> MemberExchange::read_refusal(Rank from, const MemberMessage& message) const {
  if (message.round != 0) return std::nullopt;
  Refusal refusal{from, message.creation, kNoRank, message.list, {}};
  std::uint64_t calls = 0;
  std::istringstream text(message.text);
  text >> calls >> refusal.peer >> refusal.other;
  const bool is_valid = !text.fail() && refusal.peer >= 0 && refusal.peer < view_.world.size();
  if (!is_valid || calls < calls_) return std::nullopt;
  return refusal;
}

void MemberExchange::throw_if_concerned(const Refusal& refusal) {
  const Rank self = view_.world.self;
  if (refusal.creation == creation_) {
    // An earlier list of this rank was refused, if it is the peer.
    if (refusal.peer != self) throw_mismatch(refusal.from, refusal.list, refusal.peer, refusal.other);
  } else if (!read_from_[static_cast<std::size_t>(refusal.from)] && list_contains(refusal.list, self)) {
    refuse_list(refusal.from, refusal.list);
  }
}

void MemberExchange::refuse_list(Rank peer, const std::string& list) {
  publish_refusal(peer, list);
  throw_mismatch(view_.world.self, list_, peer, list);
}

void MemberExchange::throw_mismatch(Rank one, const std::string& list, Rank other,
                                    const std::string& other_list) const {
  std::string text = fmt::format("rank {} passed ranks {}", one, list);
  const std::string other_text = fmt::format("rank {} passed ranks {}", other, other_list);
  text = one < other ? fmt::format("{}, {}", text, other_text) : fmt::format("{}, {}", other_text, text);
  throw Error(Errc::mismatch, fmt::format("{}: {}", label_, text), view_.world.self, other, "create_group");
}

void MemberExchange::publish_refusal(Rank peer, const std::string& list) {
  refusal_ = fmt::format("{} {} {}", calls_, peer, list);
  MemberBlock& mine = block_of(view_.world.self);
  std::uint64_t number = 1;
  for (const RefusedList& one : mine.refused) number = std::max(number, one.number.load(std::memory_order_relaxed) + 1);
  RefusedList& record = mine.refused[number % kRefusedLists];
  // A reader uses the record only if it reads the same number before and after it.
  record.number.store(0, std::memory_order_relaxed);
  record.creation.store(creation_, std::memory_order_release);
  record.name.store(name_, std::memory_order_release);
  record.time.store(time_now(), std::memory_order_release);
  record.calls.store(calls_, std::memory_order_release);
  record.peer.store(static_cast<std::uint64_t>(peer), std::memory_order_release);
  store_list(record.list, list_);
  store_list(record.other, list);
  record.number.store(number, std::memory_order_release);
}

}  // namespace collectives
