// Texts about point-to-point calls and messages, for errors and the log.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/types.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Returns the operation as text: "send #4 to rank 1 (tag 7)".
std::string text_of(const MessageOperation& operation);
/// Returns the rank at the other end of a call as text: "rank 1" or "any rank".
std::string end_text(const MessageCall& call);
/// Returns count and type of a message as text: "100 x f32".
std::string shape_text(std::uint64_t bytes, DataType type);

}  // namespace collectives
