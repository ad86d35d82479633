// Texts that describe point-to-point calls and messages, for errors and the log.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/types.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Returns a send or receive as text, such as "send #4 to rank 1 (tag 7)". #4 is the number of the call. The send of a
/// sendrecv is "sendrecv #4 to rank 1 (tag 7)".
std::string text_of(const MessageOperation& operation);
/// Returns the peer of a call as text, such as "rank 1" or "any rank".
std::string end_text(const MessageCall& call);
/// Returns count and type of a message as text: "100 x f32".
std::string shape_text(std::uint64_t bytes, DataType type);

}  // namespace collectives
