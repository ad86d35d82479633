// MemberExchange: lets some ranks of a communicator exchange texts without the other ranks. These ranks are the
// members. In create_group(), the members make a new communicator, and exchange texts in order to connect.
//
// Each member passes a list of all members, and a name, to create_group(). A hash of the list and the name is the
// creation number. Other ranks may call create_group() at the same time. Their creation numbers differ.
//
// Inside a host, a member writes its text into its own MemberBlock in the arena, the shared memory of the host. A block
// has room for 4 KiB, so a member writes a longer text in pieces. A member writes its next piece only after all other
// members of the host have read the previous piece. Each member also sends its text to the members of other hosts, in
// control messages (MemberMessage).
//
// Different lists. By a mistake of the program, members A and B may pass the same name but different lists, each of
// which contains A and B. If A notices the mistake before it has read a text of B, then A refuses the list of B. A
// throws Error{mismatch}, and publishes its own list and the list of B in shared memory (RefusedList). A also sends
// these two lists to members of other hosts. Each member that waits for A reads the two lists and throws the same
// error. Later calls do not erase the published lists. If A and B have just made a communicator, A ignores the list of
// this finished call, because B may still be in the call.
//
// Late members. Member C may begin its call after A has refused a list. C then throws the same error. C ignores the
// refusal in four cases, because the refusal may belong to an earlier call:
//
//   - C has entered more collectives of the communicator than A had at the refusal. This is so if the members repeat a
//     failed call after a barrier.
//   - The latest call of C with that name has failed.
//   - C has made a communicator with A after the refusal.
//   - A now makes the same communicator as C.
//
// Lost members. A waiting member throws Error{peer_lost} if the process of another member has ended, or if that member
// has left the communicator. A member may have left because the process of a third member has ended. The error then
// names the third member. The communicator stays usable after this error. An ended process of a rank that is not a
// member causes no error.
//
// The destructor removes the text of this rank from shared memory. Price: each rank needs 10 KiB of the arena.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "communicator/one_call.hpp"
#include "monitoring/failure_detector.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// State of one communicator between its calls of create_group().
struct CreationState {
  OneCall one_call{"create_group"};
  /// Latest call in which this rank has made a communicator with another one.
  struct Made {
    std::uint64_t begun = 0;        ///< time at which this rank began it
    std::uint64_t call_number = 0;  ///< MemberBlock::call_number of the other rank, if that is on this host
  };
  std::set<std::uint64_t> failed;  ///< hashes of the names whose latest call has failed on this rank
  std::map<Rank, Made> made;       ///< by member
};

class MemberExchange {
 public:
  /// Function that returns a lock. Other threads cannot use the communicator while the lock exists.
  using Guard = std::function<std::unique_lock<std::mutex>()>;

  /// Begins the exchanges of `members`, which contain this rank. `state`: state of the parent communicator.
  MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                 std::vector<Rank> members, std::string_view name, CreationState& state);
  ~MemberExchange();
  MemberExchange(const MemberExchange&) = delete;
  MemberExchange& operator=(const MemberExchange&) = delete;

  /// Returns the texts of all members, by communicator rank. Other ranks have empty texts. Throws Error{timeout} that
  /// names the missing members, Error{mismatch} and Error{peer_lost}.
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);
  /// Throws Error{peer_lost} if the process of a member has ended, or if a member left kLookForEnd ago.
  void check();
  /// States that the members have made their communicator. If complete() was not called, the destructor reports to the
  /// members of other hosts that this rank has given up.
  void complete() noexcept { complete_ = true; }

 private:
  /// Refusal of a list by another member.
  struct Refusal {
    Rank from;
    std::uint64_t creation;  // creation of `from`
    Rank peer;
    std::string list, other;  // lists of `from` and `peer`
  };
  /// Member that was lost.
  struct LostMember {
    Rank rank;
    std::string how;
    bool left;  // whether it has left the communicator
  };

  MemberBlock& block_of(Rank rank) const { return arena_.block(view_.local_of(rank)).member; }
  /// Returns the control messages between hosts; null if there is one host only.
  ControlProtocol* control() const { return failure_detector_.control_ ? &*failure_detector_.control_ : nullptr; }
  bool is_here(Rank rank) const { return view_.host_of(rank) == view_.grid.host; }
  /// Blocks until `done` is true for all members of this host, or of other hosts.
  template <class Done>
  void wait_for(const std::vector<Rank>& ranks, Deadline deadline, Done&& done);
  void drop_old_messages();
  void note_end();
  void show(std::string_view left);
  /// Appends the current piece of a member to `text`. Returns false if the member has not written the piece yet.
  bool read_piece(Rank rank, std::string& text, bool& is_last);
  void gather_here(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  void gather_remote(std::vector<std::string>& all, Deadline deadline);
  void send_to_remote(std::uint64_t round, std::string_view text);
  /// Returns a member that was lost: one whose process has ended, if there is one. If `search` is true, searches for
  /// ended processes even if another rank has just done so.
  std::optional<LostMember> find_lost(bool search) const;
  [[noreturn]] void throw_lost(const LostMember& lost) const;
  /// Throws Error{mismatch} if a member makes a creation of the same name with another list, or has refused a list.
  void check_lists();
  void check_lists_here();
  void check_remote_lists();
  /// Returns a refusal from the arena. Returns nothing if it has another name, is too old, or is being written.
  std::optional<Refusal> read_refusal(Rank from, const RefusedList& record) const;
  /// Returns the refusal in a message, of any name. Returns nothing if it holds none, or one that is too old.
  std::optional<Refusal> read_refusal(Rank from, const MemberMessage& message) const;
  /// Throws Error{mismatch} if this rank would wait for the member that has refused a list.
  void throw_if_concerned(const Refusal& refusal);
  [[noreturn]] void refuse_list(Rank peer, const std::string& list);
  [[noreturn]] void throw_mismatch(Rank one, const std::string& list, Rank other, const std::string& other_list) const;
  void publish_refusal(Rank peer, const std::string& list);

  const RankView& view_;
  Arena& arena_;
  FailureDetector& failure_detector_;
  Guard guard_;
  const std::vector<Rank> members_;
  std::vector<Rank> here_, remote_;  // the other members, of this host and of other hosts
  const std::string label_, list_;
  const std::uint64_t name_, creation_;
  CreationState& state_;
  std::uint64_t begun_;                      // time of the steady clock at which this rank began
  const std::uint64_t calls_;                // collectives of the parent that this rank had entered before
  std::vector<bool> read_from_;              // by rank: whether this rank has read a text of the member
  std::vector<std::uint64_t> call_numbers_;  // by rank: MemberBlock::call_number of the text that this rank has read
  std::string refusal_;  // text of the message that this rank has given up, with a list that it has refused
  std::optional<std::chrono::steady_clock::time_point> leaver_found_;  // first time at which a member had left
  bool complete_ = false;
  std::uint64_t pieces_ = 0;  // pieces that this rank has shown
  std::uint64_t round_ = 0;   // exchanges that this rank has begun
};

}  // namespace collectives
