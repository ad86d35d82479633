// MemberExchange: lets some ranks of a communicator exchange texts while the other ranks take no part. These ranks are
// the members. In create_group(), they make a communicator of their own, and use this class to connect.
//
// Each member passes a list of all members, and a name. A hash of both, the creation number, tells this call of
// create_group() from others that other ranks make at the same time.
//
// Inside a host, a member writes its text into its own MemberBlock in the arena, the shared memory of the host. A block
// has room for 4 KiB, so long texts are written in pieces. A member writes its next piece only after all other members
// of the host have read the last one. Between hosts, a member sends its text to each member of other hosts, in a
// control message (MemberMessage).
//
// Different lists. Two members may pass the same name but different lists, each of which contains both members. This is
// a mistake of the program. If one of them notices it before it has read a text of the other, it throws
// Error{mismatch}. Its block then keeps its list and the time of the error, so that the other member can notice the
// mistake, too. A member ignores errors from before its own call.
//
// Lost members. A waiting member throws Error{peer_lost} if the process of another member has ended, or if that member
// has left the communicator. The communicator itself stays usable. Ranks that are not members may have ended.
//
// The destructor withdraws the text of this rank. Price: each rank needs 5 KiB of the arena.
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
  /// Function that returns a lock. Other threads cannot use the communicator while the lock exists.
  using Guard = std::function<std::unique_lock<std::mutex>()>;

  /// Begins the exchanges of `members`, which contain this rank.
  MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                 std::vector<Rank> members, std::string_view name);
  ~MemberExchange();
  MemberExchange(const MemberExchange&) = delete;
  MemberExchange& operator=(const MemberExchange&) = delete;

  /// Returns the texts of all members, by communicator rank. Other ranks have empty texts. Throws Error{timeout} that
  /// names the missing members, Error{mismatch} and Error{peer_lost}.
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);
  /// Throws Error{peer_lost} if a member has ended or left.
  void check() const;
  /// States that the members have made their communicator. If complete() was not called, the destructor reports to the
  /// members of other hosts that this rank has given up.
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
  /// Appends the current piece of a member to `text`. Returns false if the member has not written the piece yet.
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
