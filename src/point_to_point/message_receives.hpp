// Message receives: the receiving side of point-to-point messages.
//
// A stored message has arrived before its receive. A receive first looks among the stored messages. If none matches,
// the receive is posted: it waits on a list (matching.hpp). A message goes to a posted receive, or is stored. A long
// message is announced by a request. A receive that has matched a request either copies the data from the memory of the
// sender, or asks the sender to send the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "monitoring/failure_detector.hpp"
#include "point_to_point/direct_copy.hpp"
#include "point_to_point/matching.hpp"
#include "point_to_point/message_calls.hpp"
#include "point_to_point/message_links.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

class MessageReceives {
 public:
  /// `self`, `ranks`: this rank and the number of ranks. `failure_detector`: gets the failure if type or count of a
  /// message differ from those of its receive.
  MessageReceives(Rank self, int ranks, MessageLinks& links, MessageCalls& calls, DirectCopy& direct,
                  FailureDetector& failure_detector)
      : self_(self),
        links_(links),
        calls_(calls),
        direct_(direct),
        failure_detector_(failure_detector),
        matching_(ranks),
        senders_(static_cast<std::size_t>(ranks)) {}

  /// Starts a receive. It ends at once, or becomes an unfinished call. Throws Error{mismatch}.
  void start(MessageOperation& receive);
  /// Polls the link of a source on this host up to `polls` times. If the next message is the one for the receive, takes
  /// it and returns true. Otherwise changes nothing and returns false.
  bool end_at_once(MessageOperation& receive, int polls);
  /// Returns the next envelope from a rank, or null. The link writes data to the receive that waits for them, if it
  /// can.
  const Envelope* next_from(Rank from) {
    const MessageLinks::End& end = links_[from];
    return end.host != nullptr ? end.host->arrived() : next_from_host(from);
  }
  /// Takes a message that next_from() has returned: eager, request or data. Returns whether the message has ended. If
  /// not, a part of its payload has not arrived yet, and next_from() returns the message again. Throws
  /// Error{mismatch}.
  bool take(Rank from, const Envelope& arrived);
  /// Copies one piece of the oldest message from a rank whose memory this rank reads.
  void progress(Rank from) {
    if (!sender(from).copies.empty()) copy_piece(from);
  }
  /// Forgets all receives, after a failure. Stored messages stay.
  void forget() noexcept;
  /// Calls visit() for the messages of a rank that no receive has taken, oldest first.
  template <class Visit>
  void for_each_stored(Rank from, Visit&& visit) const {
    matching_.for_each_stored(from, visit);
  }

 private:
  /// Receives from one rank.
  struct Sender {
    MessageList copies;                                  // receives that copy data themselves; the first has begun
    MessageList streams;                                 // receives that wait for data, in the order of the data
    MessageOperation* filling = nullptr;                 // receive with a part of the payload of an eager message
    std::uint64_t eager_taken = 0, taken_published = 0;  // credit of the sender
  };
  Sender& sender(Rank rank) noexcept { return senders_[static_cast<std::size_t>(rank)]; }

  const Envelope* next_from_host(Rank from);
  bool take_eager(Rank from, const Envelope& envelope);
  void take_request(Rank from, const Envelope& envelope);
  bool take_data(Rank from, const Envelope& envelope);
  void take_stored(MessageOperation& receive, StoredMessage& stored);
  /// Begins to receive a long message that `receive` has matched.
  void accept(MessageOperation& receive, Rank from, const Envelope& request);
  void copy_piece(Rank from);
  void give_credit(Rank from, std::uint64_t bytes);
  /// Throws Error{mismatch} if a message differs from the receive that has matched it.
  void check_shape(const MessageOperation& receive, Rank from, const Envelope& envelope);

  const Rank self_;
  MessageLinks& links_;
  MessageCalls& calls_;
  DirectCopy& direct_;
  FailureDetector& failure_detector_;
  Matching matching_;
  std::vector<Sender> senders_;  // by rank
};

}  // namespace collectives
