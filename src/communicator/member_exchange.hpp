// MemberExchange: lets some ranks of a communicator exchange texts without the other ranks. These ranks are the
// members. In create_group(), the members make a new communicator, and exchange texts in order to connect.
//
// Each member passes a list of all members, and a name, to create_group(). A hash of both is the creation number of the
// call. A call has two phases. First it joins: it waits until all members are in a call with the same creation number.
// Then the members exchange texts, in rounds.
//
// Numbers. Calls of one name follow one another, and a call may fail on a member while another member has not begun it.
// Each rank therefore counts, for each other rank, its calls whose lists contain that rank. This count is the number of
// the call between the two ranks. It is equal on both as long as their calls succeed. If it differs, the ranks compare:
//
//   lower     The peer's call is older than that of this rank, which ignores it.
//   equal     The two calls belong together. Their lists must be equal if their names are.
//   higher    The peer has called again after a call that failed. This rank raises its own number to the peer's if it
//             still waits for all members. In an exchange it throws, because the call of the peer has ended.
//
// Two members pass the same lists in the same order, whatever their names are, so these numbers need no name. A count
// per name or per list would differ between members after a mismatch, because each has called with another list.
//
// Memory. Inside a host, a member writes its list and its texts into its MemberBlock in the arena, the shared memory of
// the host. A MemberCall per ordered pair of ranks holds the number. A block has room for 4 KiB of a text, so a member
// writes a longer text in pieces. It writes its next piece only after all other members of the host have read the
// previous one. Members of other hosts get the same in control messages (MemberMessage). A message may be older than
// the end of the sender's call. A member of another host has therefore joined only once it has answered the number of
// this rank. Price: each rank needs 7 KiB of the arena, and 32 bytes per rank of its host.
//
// Different lists. If two members pass different lists under one name, the members that find this publish a refusal:
// the two ranks and their lists. A member that waits for a member with a refusal throws Error{mismatch} with its text,
// also if it comes late. A refusal stays in the arena until its rank refuses another call, and between hosts in the
// queue of received messages. It loses its effect on a reader when its rank begins the next call that names the reader.
// All members name the same two ranks, those with the lowest numbers that a refusal has.
//
// Failures. A waiting member throws Error{peer_lost} at once if the process of another member has ended. It looks for
// such a process for 300 ms (kLookForCause) before it throws another error, because the end may be the cause. The other
// errors are a mismatch, a member that has left the communicator, and a member whose call has failed during the
// exchanges. The last one is Error{timeout}, because most such calls fail at their deadlines. The communicator stays
// usable after these errors. An ended process of a rank that is not a member causes no error.
//
// If the call of one member fails, those of the others fail because of it. Each rank whose call fails publishes the
// member whose call failed first, as far as it knows. All members therefore name the same one, also if they notice it
// only after others have failed.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/deadline.hpp"
#include "collectives/error.hpp"
#include "communicator/one_call.hpp"
#include "monitoring/failure_detector.hpp"
#include "shared_memory/arena.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

/// State of one communicator between its calls of create_group().
struct CreationState {
  OneCall one_call{"create_group"};
  std::uint64_t calls = 0;             ///< calls of this rank
  std::vector<std::uint64_t> numbers;  ///< by rank: number of the newest call of this rank that names that rank
};

class MemberExchange {
 public:
  /// Function that returns a lock. Other threads cannot use the communicator while the lock exists.
  using Guard = std::function<std::unique_lock<std::mutex>()>;

  /// Begins a call with `members`, which contain this rank. `state`: state of the parent communicator.
  MemberExchange(const RankView& view, Arena& arena, FailureDetector& failure_detector, Guard guard,
                 std::vector<Rank> members, std::string_view name, CreationState& state);
  /// Ends the call. Reports to the members of other hosts that it has failed, unless complete() was called.
  ~MemberExchange();
  MemberExchange(const MemberExchange&) = delete;
  MemberExchange& operator=(const MemberExchange&) = delete;

  /// Returns the texts of all members, by communicator rank. Other ranks have empty texts. Throws Error{timeout} that
  /// names the missing members, Error{mismatch} and Error{peer_lost}.
  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline);
  /// Throws the error of a refusal, or of a member that was lost or whose call has failed. `at_once`: does not look for
  /// the cause first.
  void check(bool at_once = false);
  /// Throws such an error if it is found within 300 ms. Reason: a member whose call fails first closes its connections
  /// and its arena, and publishes the failure after that.
  void look_for_cause();
  /// States that the members have made their communicator.
  void complete() noexcept { complete_ = true; }

 private:
  /// Newest call of another member that names this rank, as far as this rank knows.
  struct PeerCall {
    enum class State : std::uint8_t { over, open, refused } state = State::over;
    std::uint64_t number = 0;    // number between the two ranks; 0: there was no call
    std::uint64_t name = 0;      // hash of its name; undefined if the call is over
    std::uint64_t creation = 0;  // creation number, if the call is open
    std::uint64_t answered = 0;  // number of this rank that a member of another host has answered
    std::string text = {};       // list of an open call with another creation number, or an encoded refusal
  };
  /// Two members that have passed different lists under one name, the lower rank first.
  struct Refusal {
    Rank one, other;
    std::string sentence;  // the ranks and their lists
    std::string encode() const { return fmt::format("{} {} {}", one, other, sentence); }
  };

  MemberBlock& block_of(Rank rank) const { return arena_.block(view_.local_of(rank)).member; }
  MemberCall& call_from(Rank rank, Rank to) const {
    return arena_.member_call(view_.local_of(rank), view_.local_of(to));
  }
  /// Returns the control messages between hosts; null if there is one host only.
  ControlProtocol* control() const { return failure_detector_.control_ ? &*failure_detector_.control_ : nullptr; }
  bool is_here(Rank rank) const { return view_.host_of(rank) == view_.grid.host; }
  std::uint64_t& number_of(Rank rank) const { return state_.numbers[static_cast<std::size_t>(rank)]; }
  void begin_call_with(Rank rank);
  PeerCall call_of(Rank rank) const;
  bool is_in_call(Rank rank) const;
  /// Returns the member whose call failed first, as far as `rank` knew when its own call with this rank failed. Returns
  /// nothing if that call has not failed.
  std::optional<Rank> first_failed_of(Rank rank) const;
  /// Sends a message of this call to a member of another host. If there is a refusal, sends the refusal instead.
  void send(Rank rank, std::uint64_t round, std::string_view text) const;
  /// Blocks until `done` is true for all `ranks`.
  template <class Done>
  void wait_for(const std::vector<Rank>& ranks, Deadline deadline, Done&& done);
  std::string last_answer(Rank rank) const;
  /// Compares the newest call of a member with this call, and answers it. Returns whether the member has joined. If it
  /// has passed another list, or has published a refusal, this rank publishes a refusal.
  bool join(Rank rank);
  /// Returns the refusal of a call. Returns nothing if it is malformed. Returns nothing either if it names another list
  /// of this rank: it then belongs to an earlier call of this rank, whose list did not contain the member.
  std::optional<Refusal> refusal_of(const PeerCall& peer) const;
  /// Publishes a refusal, unless this rank has published one of lower ranks.
  void refuse(const Refusal& refusal);

  /// Appends the current piece of a member to `text`. Returns false if the member has not written the piece yet.
  bool read_piece(Rank rank, std::string& text, bool& is_last);
  void gather_here(std::string_view mine, std::vector<std::string>& all, Deadline deadline);
  void gather_remote(std::vector<std::string>& all, Deadline deadline);
  Error error(Errc code, Rank peer, std::string_view text) const;
  std::optional<Error> loss_of(Rank rank, bool& left) const;
  /// Returns the error of the refusal, or of a member that has left or whose call has failed. Throws the error of a
  /// member whose process has ended.
  std::optional<Error> find_failure();

  const RankView& view_;
  Arena& arena_;
  FailureDetector& failure_detector_;
  Guard guard_;
  std::vector<Rank> others_, here_, remote_;  // the other members: all, of this host, and of other hosts; ascending
  const std::string label_, list_;
  const std::uint64_t name_, creation_;
  CreationState& state_;
  std::vector<std::uint64_t> seen_;  // by rank: number of the member's call that belongs to this one; 0: none yet
  std::optional<Refusal> refusal_;   // the one that this rank publishes and will throw
  std::optional<std::chrono::steady_clock::time_point> failure_found_;  // first time at which check() found a failure
  std::optional<Rank> first_failed_;  // first member whose call has failed, as far as this rank knows
  bool complete_ = false;
  std::uint64_t pieces_ = 0;  // pieces that this rank has shown
  std::uint64_t round_ = 0;   // exchanges that this rank has begun; 0: it joins
};

}  // namespace collectives
