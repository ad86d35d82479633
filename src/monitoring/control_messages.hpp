// Control messages: the texts that the failure detectors of different hosts send to one another. The wire, the
// transport between hosts, carries them. There are seven kinds:
//
//   A CODE PEER\nOPERATION\nTEXT   abort: the first failure of the communicator (AbortMessage)
//   R RECORD*                      arrivals: calls that ranks have entered (ArrivalMessage)
//   L CALL RECORD*                 leave: the sender leaves the communicator; CALL is its last completed call, and the
//                                  records are those of its last calls (LeaveMessage)
//   W WORD                         wait: the point-to-point message for which the sender waits (WaitMessage)
//   P NUMBER                       ping: asks the receiver for an echo (PingMessage)
//   E NUMBER                       echo: the answer to a ping, which shows that the sender runs (PingMessage)
//   G NUMBER ANSWERED NAME CREATION ROUND\nLIST\nTEXT
//                                  member: the sender's state in a call of create_group(), and its text for the other
//                                  members (MemberMessage)
//
// A record begins with a space. It has one of two forms:
//
//   RANK CALL BEFORE AFTER W0 ... W6 LENGTH:DETAILS
//   =AFTER
//
// BEFORE is the running hash before the call. AFTER is the hash with the call. W0 to W6 are the words of its signature,
// the arguments on which all ranks must agree (signature.hpp). DETAILS are LENGTH bytes of encoded details, such as the
// name of a tensor (call_record.hpp). The second form stands for the next call of the same rank, with equal arguments.
//
// Numbers are decimal. One space separates neighbouring numbers. encode() makes the bytes of a message. decode() reads
// them. It returns none if they are malformed. The wire names the sender of a message, so the message does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/call_record.hpp"
#include "monitoring/first_failure.hpp"

namespace collectives {

/// Largest number of records that decode() accepts in one message.
inline constexpr std::size_t kMostRecords = 65'536;

struct AbortMessage {
  Failure failure;

  std::string encode() const;
  static std::optional<AbortMessage> decode(std::string_view bytes);
};

struct ArrivalMessage {
  std::vector<Arrived> records;  ///< Calls of ranks of the sender's host; those of one rank in ascending order.

  std::string encode() const;
  static std::optional<ArrivalMessage> decode(std::string_view bytes);
};

struct LeaveMessage {
  std::uint64_t completed = 0;        ///< Number of the sender's last completed call.
  std::vector<Arrived> records = {};  ///< Last calls of the sender, in ascending order.

  std::string encode() const;
  static std::optional<LeaveMessage> decode(std::string_view bytes);
};

struct WaitMessage {
  std::uint64_t word = 0;  ///< MessageWait::word(); 0: the wait has ended.

  std::string encode() const;
  static std::optional<WaitMessage> decode(std::string_view bytes);
};

struct PingMessage {
  std::uint64_t number = 0;  ///< number of the ping at the rank that has sent it
  bool is_echo = false;      ///< whether this message answers the ping

  std::string encode() const;
  static std::optional<PingMessage> decode(std::string_view bytes);
};

/// Message between two ranks that make a communicator by create_group() (member_exchange.hpp).
struct MemberMessage {
  /// Round of the message that the sender's call has failed.
  static constexpr std::uint64_t kFailed = ~std::uint64_t{0};

  std::uint64_t number = 0;    ///< number of the call between the two ranks
  std::uint64_t answered = 0;  ///< number that the sender has received from the receiver in this call; 0: none
  std::uint64_t name = 0;      ///< hash of the name
  std::uint64_t creation = 0;  ///< hash of the name and the ranks of the communicator
  std::uint64_t round = 0;     ///< number of the exchange, from 1; 0: the sender waits for all members; kFailed
  std::string list = {};       ///< ranks of the communicator, as text; with kFailed: rank whose call failed first
  std::string text = {};       ///< text of the exchange; with kFailed: the refusal, if any (member_exchange.cpp)

  std::string encode() const;
  static std::optional<MemberMessage> decode(std::string_view bytes);
};

/// One message of any kind. The first alternative means that the bytes are no message.
using ControlMessage =
    std::variant<std::monostate, AbortMessage, ArrivalMessage, LeaveMessage, WaitMessage, PingMessage, MemberMessage>;
ControlMessage decode_control_message(std::string_view bytes);

}  // namespace collectives
