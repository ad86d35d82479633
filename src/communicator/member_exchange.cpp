// Implementation of MemberExchange, by which some ranks of a communicator exchange texts without the other ranks. These
// ranks are the members. They exchange texts in order to make a new communicator.
//
// A member reads the calls of members of its host from the arena at any time. The fields of a block belong to the call
// whose number (MemberBlock::call) a reader finds before and after it reads them. A member stores 0 there when its call
// ends, and the next number after all fields of its next call.
#include "communicator/member_exchange.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <sstream>
#include <utility>

#include "base/coarse_clock.hpp"
#include "base/reported_wait.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace collectives {
namespace {

using Words = std::span<std::atomic<std::uint64_t>>;

constexpr std::size_t kPieceBytes = kMemberPieceWords * sizeof(std::uint64_t);
// Maximum bytes of the sentence of a refusal. The rest of its record holds the numbers of the two ranks.
constexpr std::size_t kMostSentence = (kMemberTextWords - 4) * sizeof(std::uint64_t);

// Time from the discovery of a failure until this rank throws it. During this time, this rank looks for a member whose
// process has ended, and for a refusal of lower ranks. The time must be long enough for the host of the ended process
// to close its connections.
constexpr auto kLookForCause = std::chrono::milliseconds(300);

void store_text(Words words, std::string_view text) {
  for (std::size_t at = 0; at < text.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
    words[at / sizeof word].store(word, std::memory_order_release);
  }
}

std::string load_text(Words words, std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = words[at / sizeof word].load(std::memory_order_acquire);
    std::memcpy(text.data() + at, &word, std::min(sizeof word, bytes - at));
  }
  return text;
}

/// Stores a text that ends with a zero byte. Requires that `text` is shorter than `words`.
void store_line(Words words, const std::string& text) { store_text(words, text + '\0'); }

std::string load_line(Words words) { return load_text(words, words.size_bytes()).c_str(); }

/// Returns a list that another process has sent, or the begin of a list that is too long for a MemberBlock.
std::string printable_list(std::string_view list) {
  return printable_text(list, kMemberListWords * sizeof(std::uint64_t) - sizeof "...");
}

std::string passed_text(Rank rank, std::string_view list) {
  return fmt::format("rank {} passed ranks {}", rank, printable_list(list));
}

std::uint64_t hash_text(std::string_view text, std::uint64_t seed) {
  const std::uint64_t hash = hash_bytes(text.data(), text.size(), seed);
  return hash != 0 ? hash : 1;  // 0 means unknown
}

}  // namespace

MemberExchange::MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                               std::vector<Rank> members, std::string_view name, CreationState& state)
    : view_(view),
      arena_(arena),
      failure_detector_(failure_detector),
      guard_(std::move(guard)),
      label_(name.empty() ? "create_group" : fmt::format("create_group \"{}\"", name)),
      list_(fmt::format("{}", fmt::join(members, ","))),
      name_(hash_text(name, 1)),
      creation_(hash_text(list_, name_)),
      state_(state),
      seen_(view_.world.members.size()) {
  {
    const auto lock = guard_();
    failure_detector_.check_control();
  }
  std::ranges::sort(members);
  MemberBlock& mine = block_of(view_.world.self);
  mine.shown.value.store(0, std::memory_order_release);
  mine.taken.value.store(0, std::memory_order_release);
  mine.name.store(name_, std::memory_order_release);
  mine.creation.store(creation_, std::memory_order_release);
  store_line(mine.list, printable_list(list_));
  ++state_.calls;
  state_.numbers.resize(seen_.size());
  for (const Rank rank : members)
    if (rank != view_.world.self) begin_call_with(rank);
  mine.call.value.store(state_.calls, std::memory_order_release);
}

/// Publishes the number of this call for another member. A call that this rank has not made yet may belong to it.
void MemberExchange::begin_call_with(Rank rank) {
  others_.push_back(rank);
  (is_here(rank) ? here_ : remote_).push_back(rank);
  std::uint64_t& number = number_of(rank);
  number = std::max(number + 1, call_of(rank).number);
  if (is_here(rank)) {
    MemberCall& call = call_from(view_.world.self, rank);
    call.number.store(number, std::memory_order_release);
    call.call.store(state_.calls, std::memory_order_release);
  } else {
    const auto lock = guard_();
    std::erase_if(control()->member_messages(rank), [&](const auto& one) { return one.number < number; });
  }
}

MemberExchange::~MemberExchange() {
  const Rank self = view_.world.self;
  if (!complete_)
    for (const Rank rank : here_) {
      MemberCall& call = call_from(self, rank);
      call.first_failed.store(static_cast<std::uint64_t>(first_failed_.value_or(self)), std::memory_order_release);
      call.failed.store(number_of(rank), std::memory_order_release);
    }
  block_of(self).call.value.store(0, std::memory_order_release);
  if (complete_) return;
  try {
    for (const Rank rank : remote_) send(rank, MemberMessage::kFailed, {});
  } catch (const std::exception&) {  // if this message is not sent, members of other hosts wait until their deadline
  }
}

// ---- calls of other members ----

MemberExchange::PeerCall MemberExchange::call_of(Rank rank) const {
  using State = PeerCall::State;
  PeerCall peer;
  if (!is_here(rank)) {
    const auto lock = guard_();
    const auto& messages = control()->member_messages(rank);
    if (messages.empty()) return peer;
    const MemberMessage& last = messages.back();
    peer = {State::open, last.number, last.name, last.creation, last.answered, {}};
    if (last.round == MemberMessage::kFailed) {
      peer.state = last.text.empty() ? State::over : State::refused;
      peer.text = last.text;
    } else if (last.creation != creation_) {
      peer.text = last.list;
    }
    return peer;
  }
  const MemberCall& pair = call_from(rank, view_.world.self);
  MemberBlock& block = block_of(rank);
  const std::uint64_t call = pair.call.load(std::memory_order_acquire);
  peer.number = pair.number.load(std::memory_order_acquire);
  if (call == 0) return peer;
  RefusalRecord& refusal = block.refusal;
  const std::uint64_t sequence = refusal.sequence.load(std::memory_order_acquire);
  if (refusal.call.load(std::memory_order_acquire) == call) {
    peer.name = refusal.name.load(std::memory_order_acquire);
    peer.text = load_line(refusal.text);
    const bool is_whole = sequence % 2 == 0 && refusal.sequence.load(std::memory_order_acquire) == sequence;
    peer.state = is_whole ? State::refused : State::over;
    return peer;
  }
  peer.name = block.name.load(std::memory_order_acquire);
  peer.creation = block.creation.load(std::memory_order_acquire);
  if (peer.creation != creation_) peer.text = load_line(block.list);
  peer.state = block.call.value.load(std::memory_order_acquire) == call ? State::open : State::over;
  return peer;
}

bool MemberExchange::is_in_call(Rank rank) const {
  const PeerCall peer = call_of(rank);
  return peer.state == PeerCall::State::open && peer.number == number_of(rank);
}

std::optional<Rank> MemberExchange::first_failed_of(Rank rank) const {
  const std::uint64_t number = number_of(rank);
  auto first = others_.end();
  if (is_here(rank)) {
    const MemberCall& call = call_from(rank, view_.world.self);
    if (call.failed.load(std::memory_order_acquire) < number) return std::nullopt;
    first = std::ranges::find(others_, static_cast<Rank>(call.first_failed.load(std::memory_order_acquire)));
  } else {
    const auto lock = guard_();
    const auto& messages = control()->member_messages(rank);
    const auto failed = std::ranges::find_if(
        messages, [&](const auto& one) { return one.number >= number && one.round == MemberMessage::kFailed; });
    if (failed == messages.end()) return std::nullopt;
    first = std::ranges::find(others_, failed->list, [](Rank other) { return std::to_string(other); });
  }
  return first != others_.end() ? *first : rank;
}

void MemberExchange::send(Rank rank, std::uint64_t round, std::string_view text) const {
  MemberMessage message{number_of(rank), seen_[static_cast<std::size_t>(rank)], name_, creation_, round};
  if (refusal_) message.round = MemberMessage::kFailed;
  if (round == 0) message.list = list_;
  if (round == MemberMessage::kFailed) message.list = std::to_string(first_failed_.value_or(view_.world.self));
  message.text = refusal_ ? refusal_->encode() : std::string(text);
  const auto lock = guard_();
  control()->send(rank, message);
}

// ---- failures ----

Error MemberExchange::error(Errc code, Rank peer, std::string_view text) const {
  return {code, fmt::format("{}: {}", label_, text), view_.world.self, peer, "create_group"};
}

/// Returns the error of a member that was lost. Sets `left` if it has left the communicator.
std::optional<Error> MemberExchange::loss_of(Rank rank, bool& left) const {
  std::string how;
  if (!is_here(rank)) {
    const auto lock = guard_();
    how = control()->end_of(rank);
    left = control()->has_left(rank);
  } else if (const int local = view_.local_of(rank); arena_.ended(local) != 0) {
    const RankBlock& block = arena_.block(local);
    left = block.departed.value.load() == kHasLeft;
    how = fmt::format("{} after its call #{}", left ? "it left the communicator" : "its process ended",
                      block.completed.value.load());
  }
  if (how.empty()) return std::nullopt;
  return error(Errc::peer_lost, rank, fmt::format("rank {} was lost: {}", rank, how));
}

std::optional<Error> MemberExchange::find_failure() {
  std::optional<Error> failure;
  if (refusal_)
    failure = error(Errc::mismatch, refusal_->other != view_.world.self ? refusal_->other : refusal_->one,
                    refusal_->sentence);
  if (round_ == 0) first_failed_.reset();  // while this rank joins, a member may call again
  for (const Rank rank : others_) {
    bool left = false;
    std::optional<Error> loss = loss_of(rank, left);
    if (loss && !left) throw *std::move(loss);
    const std::optional<Rank> first = first_failed_of(rank);
    if (!first_failed_) first_failed_ = first;
    if (failure) continue;
    if (first && (round_ > 0 || left))
      failure = error(Errc::timeout, *first_failed_,
                      fmt::format("rank {} gave up before all members had made the communicator: all members have to "
                                  "call create_group() again",
                                  *first_failed_));
    else if (round_ == 0)  // a member that leaves later, and has not failed, has made the communicator
      failure = std::move(loss);
  }
  return failure;
}

void MemberExchange::check(bool at_once) {
  {
    const auto lock = guard_();
    failure_detector_.check_control();
    if (ControlProtocol* const of_hosts = control()) of_hosts->note_lost();
    arena_.search_ended(coarse_now(), std::chrono::milliseconds(at_once || failure_found_ ? 0 : 10));
  }
  const std::optional<Error> failure = find_failure();
  const auto now = std::chrono::steady_clock::now();
  if (!failure || !failure_found_) failure_found_ = failure ? std::optional(now) : std::nullopt;
  if (failure && (at_once || now - *failure_found_ >= kLookForCause)) throw *failure;
}

void MemberExchange::look_for_cause() {
  const auto until = std::chrono::steady_clock::now() + kLookForCause;
  for (Backoff backoff; std::chrono::steady_clock::now() < until; backoff.wait()) check(true);
}

template <class Done>
void MemberExchange::wait_for(const std::vector<Rank>& ranks, Deadline deadline, Done&& done) {
  const auto missing = [&] {
    std::vector<Rank> found;
    std::ranges::copy_if(ranks, std::back_inserter(found), [&](Rank rank) { return !done(rank); });
    return found;
  };
  const auto awaited = [&] {
    ReportedWait::Awaited state{missing(), {}, {}};
    // Members that have come may have given up because of those that have not, or because of the first that gave up.
    const auto was_seen = [&](Rank rank) { return seen_[static_cast<std::size_t>(rank)] != 0; };
    if (!std::ranges::all_of(state.ranks, was_seen))
      std::erase_if(state.ranks, was_seen);
    else if (first_failed_ && std::ranges::count(state.ranks, *first_failed_) != 0)
      state.ranks = {*first_failed_};
    for (const Rank rank : state.ranks)
      if (std::string answer = last_answer(rank); !answer.empty()) state.last_answer = std::move(answer);
    return state;
  };
  ReportedWait waiting("take part in " + label_, view_.world.self, deadline, awaited, [&] { check(); });
  const auto is_over = [&] { return missing().empty() && !refusal_; };  // join() may replace a refusal by a lower one
  for (Backoff backoff;; backoff.wait()) {
    const bool was_over = is_over();
    if (!was_over && waiting.is_over()) {
      check(true);
      throw waiting.timeout();
    }
    if (!remote_.empty()) {
      const auto lock = guard_();
      failure_detector_.check_control();
    }
    // A member of another host may have given up before the last member came. The message of this has arrived now.
    if (was_over && is_over()) return;
  }
}

std::string MemberExchange::last_answer(Rank rank) const {
  if (is_here(rank) && block_of(rank).call.value.load(std::memory_order_acquire) != 0)
    return fmt::format("rank {} makes a communicator of ranks {}{}", rank,
                       printable_list(load_line(block_of(rank).list)),
                       block_of(rank).name.load(std::memory_order_relaxed) == name_ ? "" : " with another name");
  const PeerCall peer = call_of(rank);
  if (peer.state != PeerCall::State::over || peer.number < number_of(rank)) return {};
  return fmt::format("rank {} gave up: all members have to be in the call at the same time", rank);
}

// ---- joining ----

bool MemberExchange::join(Rank rank) {
  const Rank self = view_.world.self;
  const PeerCall peer = call_of(rank);
  std::uint64_t& number = number_of(rank);
  std::uint64_t& seen = seen_[static_cast<std::size_t>(rank)];
  if (peer.state == PeerCall::State::over || peer.name != name_) return false;
  // Once this rank has a refusal, a higher number belongs to the member's call after the refused one.
  if (peer.number > number && (!refusal_ || seen == 0)) {
    number = peer.number;
    if (is_here(rank)) call_from(self, rank).number.store(number, std::memory_order_release);
  }
  if (peer.number != number) return false;
  std::optional<Refusal> refusal;
  if (peer.state == PeerCall::State::refused) {
    refusal = refusal_of(peer);
    if (!refusal) return false;
  } else if (peer.creation != creation_) {
    const std::string mine = passed_text(self, list_), other = passed_text(rank, peer.text);
    refusal = {std::min(self, rank), std::max(self, rank),
               self < rank ? fmt::format("{}, {}", mine, other) : fmt::format("{}, {}", other, mine)};
  }
  if (std::exchange(seen, number) != number && !is_here(rank)) send(rank, 0, {});
  if (refusal) refuse(*refusal);
  return !refusal && (is_here(rank) || peer.answered == number);
}

std::optional<MemberExchange::Refusal> MemberExchange::refusal_of(const PeerCall& peer) const {
  const Rank self = view_.world.self;
  Refusal refusal{kNoRank, kNoRank, {}};
  std::istringstream text(peer.text);
  text >> refusal.one >> refusal.other >> std::ws;
  std::getline(text, refusal.sentence);
  refusal.sentence = printable_text(refusal.sentence, kMostSentence);
  if (refusal.one < 0 || refusal.one >= refusal.other || refusal.other >= view_.world.size()) return std::nullopt;
  const std::string mine = passed_text(self, list_);
  if (refusal.one == self && !refusal.sentence.starts_with(mine + ", rank ")) return std::nullopt;
  if (refusal.other == self && !refusal.sentence.ends_with(mine)) return std::nullopt;
  return refusal;
}

void MemberExchange::refuse(const Refusal& refusal) {
  if (refusal_ && std::pair(refusal_->one, refusal_->other) <= std::pair(refusal.one, refusal.other)) return;
  refusal_ = refusal;
  RefusalRecord& record = block_of(view_.world.self).refusal;
  ++record.sequence;  // a rank may write the record of one call several times
  record.call.store(state_.calls, std::memory_order_release);
  record.name.store(name_, std::memory_order_release);
  store_line(record.text, refusal_->encode());
  ++record.sequence;
  for (const Rank rank : remote_) send(rank, MemberMessage::kFailed, {});
}

// ---- exchanges ----

bool MemberExchange::read_piece(Rank rank, std::string& text, bool& is_last) {
  MemberBlock& block = block_of(rank);
  const auto shows = [&] { return is_in_call(rank) && block.shown.value.load(std::memory_order_acquire) == pieces_; };
  if (!shows()) return false;
  const std::size_t left = block.left.load(std::memory_order_acquire);
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
    block.left.store(mine.size(), std::memory_order_release);
    store_text(block.piece, mine.substr(0, kPieceBytes));
    block.shown.value.store(++pieces_, std::memory_order_release);
    mine.remove_prefix(std::min(mine.size(), kPieceBytes));
    std::vector<bool> read(all.size());
    wait_for(here_, deadline, [&](Rank rank) {
      const auto at = static_cast<std::size_t>(rank);
      if (!read[at]) read[at] = read_piece(rank, all[at], is_last);
      return static_cast<bool>(read[at]);
    });
    block.taken.value.store(pieces_, std::memory_order_release);
    wait_for(here_, deadline, [&](Rank rank) {  // a member that has made the communicator has read all pieces
      return !is_in_call(rank) || block_of(rank).taken.value.load(std::memory_order_acquire) >= pieces_;
    });
  }
}

void MemberExchange::gather_remote(std::vector<std::string>& all, Deadline deadline) {
  std::vector<bool> read(all.size());
  wait_for(remote_, deadline, [&](Rank rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (read[at]) return true;
    const auto lock = guard_();
    auto& messages = control()->member_messages(rank);
    const auto found = std::ranges::find_if(
        messages, [&](const auto& one) { return one.number == number_of(rank) && one.round == round_; });
    if (found == messages.end()) return false;
    all[at] = std::move(found->text);
    messages.erase(found);
    return static_cast<bool>(read[at] = true);
  });
}

std::vector<std::string> MemberExchange::all_gather(std::string_view mine, Deadline deadline) {
  if (round_ == 0) {
    for (const Rank rank : remote_) send(rank, 0, {});
    wait_for(others_, deadline, [&](Rank rank) { return join(rank); });
    first_failed_.reset();
  }
  std::vector<std::string> all(view_.world.members.size());
  all[static_cast<std::size_t>(view_.world.self)] = mine;
  ++round_;
  for (const Rank rank : remote_) send(rank, round_, mine);
  gather_here(mine, all, deadline);
  gather_remote(all, deadline);
  return all;
}

}  // namespace collectives
