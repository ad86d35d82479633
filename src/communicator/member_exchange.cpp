// Implementation of MemberExchange, by which some ranks of a communicator, the members, exchange texts. The other ranks
// take no part. They make a communicator of their own with it.
//
// Members of one host write their texts into shared memory, in pieces of 4 KiB, because each rank has space for one
// piece. Each member counts the pieces that it has written (`shown`) and read (`taken`). It writes its next piece when
// all other members of the host have read the last one. Members of different hosts send their texts in control
// messages, which travel between hosts beside the data of collectives.
#include "communicator/member_exchange.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
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
                               std::vector<Rank> members, std::string_view name)
    : view_(view),
      arena_(arena),
      failure_detector_(failure_detector),
      guard_(std::move(guard)),
      members_(std::move(members)),
      label_(name.empty() ? "create_group" : fmt::format("create_group \"{}\"", name)),
      list_(fmt::format("{}", fmt::join(members_, ","))),
      name_(hash_text(name, 1)),
      creation_(hash_text(list_, name_)),
      begun_(time_now()),
      read_from_(view_.world.members.size()) {
  for (const Rank rank : members_)
    if (rank != view_.world.self) (is_here(rank) ? here_ : remote_).push_back(rank);
  drop_old_messages();
  MemberBlock& mine = block_of(view_.world.self);
  mine.shown.value.store(0, std::memory_order_release);
  mine.taken.value.store(0, std::memory_order_relaxed);
  mine.refused.store(0, std::memory_order_relaxed);
  mine.name.store(name_, std::memory_order_relaxed);
  const std::string_view cut = std::string_view(list_).substr(0, kListBytes - 1);
  store_text(mine.list, std::string(cut) + '\0');
  mine.creation.value.store(creation_, std::memory_order_release);
}

/// Deletes stored control messages of members that have sent a message with round 0, which means that they gave up.
void MemberExchange::drop_old_messages() {
  const auto lock = guard_();
  failure_detector_.check_control();
  if (control() == nullptr) return;
  auto& messages = control()->member_messages();
  for (std::size_t i = messages.size(); i-- > 0;) {
    if (messages[i].second.round != 0) continue;
    const auto [from, end] = messages[i];
    const auto last = messages.begin() + static_cast<std::ptrdiff_t>(i) + 1;
    const auto kept = std::remove_if(messages.begin(), last, [&](const auto& one) {
      return one.first == from && one.second.creation == end.creation;
    });
    messages.erase(kept, last);
    i = std::min(i, messages.size());
  }
}

MemberExchange::~MemberExchange() {
  MemberBlock& mine = block_of(view_.world.self);
  mine.shown.value.store(0, std::memory_order_release);
  if (mine.refused.load(std::memory_order_relaxed) == 0) mine.name.store(0, std::memory_order_relaxed);
  mine.creation.value.store(0, std::memory_order_release);
  const auto lock = guard_();
  try {
    ControlProtocol* const messages_of_hosts = control();
    if (messages_of_hosts == nullptr) return;
    std::erase_if(messages_of_hosts->member_messages(),
                  [&](const auto& one) { return one.second.creation == creation_; });
    if (!complete_) send_to_remote(0, {});
  } catch (const std::exception&) {  // if this message is not sent, members of other hosts wait until their deadline
  }
}

void MemberExchange::check() const {
  const auto lock = guard_();
  failure_detector_.check_control();
  if (ControlProtocol* const of_hosts = control()) of_hosts->note_lost();
  arena_.search_ended(coarse_now(), std::chrono::milliseconds(10));
  for (const Rank rank : members_) {
    if (rank == view_.world.self) continue;
    std::string how;
    if (!is_here(rank)) {
      how = control()->end_of(rank);
    } else if (const int local = view_.local_of(rank); arena_.ended(local) != 0) {
      const RankBlock& block = arena_.block(local);
      how = fmt::format("{} after its call #{}",
                        block.departed.value.load() == kHasLeft ? "it left the communicator" : "its process ended",
                        block.completed.value.load());
    }
    if (!how.empty())
      throw Error(Errc::peer_lost, fmt::format("{}: rank {} was lost: {}", label_, rank, how), view_.world.self, rank,
                  "create_group");
  }
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
        state.last_answer = fmt::format("rank {} makes a communicator of ranks {}", rank,
                                        load_text(block_of(rank).list, kListBytes).c_str());
    return state;
  };
  ReportedWait waiting("take part in " + label_, view_.world.self, deadline, awaited, [this] {
    check();
    check_lists();
  });
  for (Backoff backoff; !missing().empty(); backoff.wait()) {
    waiting.turn();
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

bool MemberExchange::read_piece(Rank rank, std::string& text, bool& is_last) const {
  const MemberBlock& block = block_of(rank);
  const auto shows = [&] {
    return block.creation.value.load(std::memory_order_acquire) == creation_ &&
           block.shown.value.load(std::memory_order_acquire) == pieces_;
  };
  if (!shows()) return false;
  const std::size_t left = block.left.load(std::memory_order_relaxed);
  const std::string piece = load_text(block.piece, std::min(left, kPieceBytes));

  if (!shows()) return false;
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
  const Rank self = view_.world.self;
  for (const Rank rank : here_) {
    if (read_from_[static_cast<std::size_t>(rank)]) continue;
    const MemberBlock& block = block_of(rank);
    const std::uint64_t creation = block.creation.value.load(std::memory_order_acquire);
    const std::uint64_t refused = block.refused.load(std::memory_order_acquire);
    if (block.name.load(std::memory_order_acquire) != name_ || creation == creation_) continue;
    if (creation == 0 && refused < begun_) continue;  // an error from before this rank began
    const std::string list = load_text(block.list, kListBytes).c_str();
    if (list != list_ && list_contains(list, self)) refuse_list(rank, list);
  }
  ControlProtocol* const messages_of_hosts = control();
  if (messages_of_hosts == nullptr) return;
  const auto lock = guard_();
  auto& messages = messages_of_hosts->member_messages();
  const auto found = std::ranges::find_if(messages, [&](const auto& one) {
    const auto& [from, message] = one;
    return message.round != 0 && message.name == name_ && message.creation != creation_ &&
           std::ranges::count(remote_, from) != 0 && !read_from_[static_cast<std::size_t>(from)] &&
           list_contains(message.list, self);
  });
  if (found == messages.end()) return;
  const auto [peer, message] = std::move(*found);
  std::erase_if(messages, [&, from = peer, creation = message.creation](const auto& one) {
    return one.first == from && one.second.creation == creation;
  });
  refuse_list(peer, message.list);
}

void MemberExchange::refuse_list(Rank peer, const std::string& list) {
  const Rank self = view_.world.self;
  block_of(self).refused.store(std::max<std::uint64_t>(time_now(), 1), std::memory_order_release);
  std::string text = fmt::format("rank {} passed ranks {}", self, list_);
  const std::string other = fmt::format("rank {} passed ranks {}", peer, list);
  text = self < peer ? fmt::format("{}, {}", text, other) : fmt::format("{}, {}", other, text);
  throw Error(Errc::mismatch, fmt::format("{}: {}", label_, text), self, peer, "create_group");
}

}  // namespace collectives
