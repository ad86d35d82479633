// Control messages: the texts that the failure detectors of different hosts send to one another. The wire, the
// transport between hosts, carries them. There are three kinds:
//
//   A CODE PEER\nOPERATION\nTEXT   abort: the first failure of the communicator (AbortMessage)
//   R CALL (RANK W0 ... W6)*       arrivals: ranks that have entered call CALL, and their signatures (ArrivalMessage)
//   L CALL                         leave: the sender leaves the communicator; CALL is its last completed call
//                                  (LeaveMessage)
//
// A signature holds the arguments of a call on which all ranks must agree. W0 to W6 are its words (signature.hpp).
// Numbers are decimal, and one space separates neighbouring numbers. encode() makes the bytes of a message, and
// decode() reads them. decode() returns none for malformed bytes. A message does not name its sender, because the wire
// names the sender of each message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/signature.hpp"
#include "monitoring/first_failure.hpp"

namespace collectives {

struct AbortMessage {
  Failure failure;

  std::string encode() const;
  static std::optional<AbortMessage> decode(std::string_view bytes);
};

struct ArrivalMessage {
  std::uint64_t sequence = 0;    ///< Number of the call.
  std::vector<Arrived> arrived;  ///< Ranks of the sender's host that have entered the call.

  std::string encode() const;
  static std::optional<ArrivalMessage> decode(std::string_view bytes);
};

struct LeaveMessage {
  std::uint64_t completed = 0;  ///< Number of the sender's last completed call.

  std::string encode() const;
  static std::optional<LeaveMessage> decode(std::string_view bytes);
};

/// One message of any kind. The first alternative means that the bytes are no message.
using ControlMessage = std::variant<std::monostate, AbortMessage, ArrivalMessage, LeaveMessage>;
ControlMessage decode_control_message(std::string_view bytes);

}  // namespace collectives
