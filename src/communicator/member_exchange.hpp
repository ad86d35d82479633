// MemberExchange: exchanges of texts between some ranks of a communicator, the members. Other ranks take no part. With
// it, the members make a communicator of their own.
//
// The members are in one list of ranks, and pass one name. A hash of both identifies what they make, the creation.
//
// Inside a host, each member shows its text in its MemberBlock of the arena. The members show texts in pieces of 4 KiB,
// in step: a member shows its next piece when all others have read the last one. A text of a member that has given up
// is thus never taken for a later one. Between hosts, each member sends its text to each member of another host, as a
// control message (MemberMessage).
//
// Other lists. Before a member has read the first text of another one, it may find that this one passed the same name
// with another list, and that both are in both lists. Both then throw Error{mismatch}. A member that throws leaves its
// list in its block with the time of the error, because the other one may not have read it yet. A member ignores errors
// from before its own begin.
//
// Lost members. A waiting member throws Error{peer_lost} if another member has ended or left the communicator. The
// communicator itself does not fail. Ranks that are not members may have ended.
//
// The object belongs to one call of create_group(). A destructor withdraws the texts of this rank. Price: each rank of
// a host needs 5 KiB in the arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "monitoring/failure_detector.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class MemberExchange {
 public:
  /// Function that keeps other threads from the communicator while its result exists.
  using Guard = std::function<std::unique_lock<std::mutex>()>;

  /// Begins the exchanges of `members`, which contain this rank.
  MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                 std::vector<Rank> members, std::string_view name);
  ~MemberExchange();
  MemberExchange(const MemberExchange&) = delete;
  MemberExchange& operator=(const MemberExchange&) = delete;

  /// Returns the texts of all members, by rank of the communicator. Other ranks have empty texts. Throws
  /// Error{timeout} that names the missing members, Error{mismatch} and Error{peer_lost}.
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);
  /// Throws Error{peer_lost} if a member has ended or left.
  void check() const;
  /// States that the members have made their communicator. Without it, the destructor tells the others that this rank
  /// has given up.
  void complete() noexcept { complete_ = true; }

 private:
  MemberBlock& block_of(Rank rank) const { return arena_.block(view_.local_of(rank)).member; }
  /// Returns the control messages between hosts; null if there is one host only.
  ControlProtocol* control() const { return failure_detector_.control_ ? &*failure_detector_.control_ : nullptr; }
  bool is_here(Rank rank) const { return view_.host_of(rank) == view_.grid.host; }
  /// Blocks until `done` is true for all members of this host, or of other hosts.
  template <class Done>
  void wait_for(const std::vector<Rank>& ranks, Deadline deadline, Done&& done);
  void drop_old_messages();
  void show(std::string_view left);
  /// Reads the newest piece of a member. Returns false if the member does not show that piece.
  bool read_piece(Rank rank, std::string& text, bool& is_last) const;
  void gather_here(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  void gather_remote(std::vector<std::string>& all, Deadline deadline);
  void send_to_remote(std::uint64_t round, std::string_view text);
  /// Throws Error{mismatch} if a member makes a creation of the same name with another list.
  void check_lists();
  [[noreturn]] void refuse_list(Rank peer, const std::string& list);

  const RankView& view_;
  Arena& arena_;
  FailureDetector& failure_detector_;
  Guard guard_;
  const std::vector<Rank> members_;
  std::vector<Rank> here_, remote_;  // the other members, of this host and of other hosts
  const std::string label_, list_;
  const std::uint64_t name_, creation_;
  std::uint64_t begun_;          // time of the steady clock at which this rank began
  std::vector<bool> read_from_;  // by rank: whether this rank has read a text of the member
  bool complete_ = false;
  std::uint64_t pieces_ = 0;  // pieces that this rank has shown
  std::uint64_t round_ = 0;   // exchanges that this rank has begun
};

}  // namespace collectives
