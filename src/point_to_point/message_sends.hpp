// Message sends: the sending side of point-to-point messages.
//
// A send passes a short message to the link to its receiver. For a long message, it passes only a request, which
// announces the message (envelope.hpp). If the link has no space, the send waits behind earlier sends to that receiver.
// If the receiver has ended or left, a send also waits, until the next check for failures reports the loss
// (message_failures.hpp). After its request, a send waits for the receiver's answer. After the answer, the send ends or
// sends its data in pieces. While the receiver copies the data itself, the sender copies some of the pieces.
//
// An eager message is a short message that is sent at once. Credit limits the bytes of eager messages that a receiver
// has to store. A send that lacks credit sends a request instead of its short message.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "point_to_point/direct_copy.hpp"
#include "point_to_point/message_calls.hpp"
#include "point_to_point/message_links.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

class MessageSends {
 public:
  /// `ranks`: number of ranks of the communicator.
  MessageSends(int ranks, MessageLinks& links, MessageCalls& calls, DirectCopy& direct)
      : links_(links), calls_(calls), direct_(direct), receivers_(static_cast<std::size_t>(ranks)) {}

  /// Starts a send. It ends at once, or becomes an unfinished call.
  void start(MessageOperation& send);
  /// Passes waiting messages to the link of rank `to`. Copies one piece of a message that both ranks copy together.
  void progress(Rank to) {
    Receiver& receiver = this->receiver(to);
    if (!receiver.waiting.empty()) hand_over_waiting(receiver);
    if (!receiver.streams.empty()) push_data(receiver, to);
    if (!receiver.open.empty()) copy_piece(receiver, to);
  }
  /// Takes an answer of a receiver: go, finished or credit.
  void take_answer(Rank from, const Envelope& answer);
  /// Forgets all sends, after a failure.
  void forget() noexcept;

  /// Returns the bytes of all messages sent, and those to other hosts. Any thread may call them.
  std::uint64_t bytes_sent() const noexcept { return bytes_sent_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_to_other_hosts() const noexcept { return bytes_to_hosts_.load(std::memory_order_relaxed); }

 private:
  /// Sends to one rank.
  struct Receiver {
    MessageList waiting;                              // sends that the link has not taken
    MessageList open;                                 // sends whose requests are on the way
    MessageList streams;                              // sends whose receiver wants the data
    std::uint64_t last_id = 0;                        // number of the last request
    std::uint64_t eager_sent = 0, eager_matched = 0;  // credit: bytes sent, and of these, bytes that receives took
  };
  Receiver& receiver(Rank rank) noexcept { return receivers_[static_cast<std::size_t>(rank)]; }

  /// Hands the message or the request of a send to the link. Returns false if the link has no space, or if the receiver
  /// has ended or left.
  bool hand_over(Receiver& to, MessageOperation& send);
  bool has_credit(Receiver& to, Rank rank, std::size_t bytes) const;
  void hand_over_waiting(Receiver& receiver);
  void push_data(Receiver& receiver, Rank to);
  void copy_piece(Receiver& receiver, Rank to);
  void note_sent(Rank to, std::size_t bytes) noexcept;
  /// Removes the open send with number `id`, and returns it. Returns null if there is none.
  static MessageOperation* take_open(Receiver& receiver, std::uint64_t id) noexcept;

  MessageLinks& links_;
  MessageCalls& calls_;
  DirectCopy& direct_;
  std::vector<Receiver> receivers_;  // by rank
  std::atomic<std::uint64_t> bytes_sent_{0}, bytes_to_hosts_{0};
};

}  // namespace collectives
