// Implementation of texts about point-to-point calls, for errors and the log, such as "send #4 to rank 1 (tag 7)".
#include "point_to_point/message_texts.hpp"

#include <fmt/format.h>

namespace collectives {

std::string end_text(const MessageCall& call) {
  return call.peer == any_source ? "any rank" : fmt::format("rank {}", call.peer);
}

std::string shape_text(std::uint64_t bytes, DataType type) {
  return fmt::format("{} x {}", bytes / size_of(type), to_string(type));
}

std::string text_of(const MessageOperation& operation) {
  const MessageCall& call = operation.call;
  return fmt::format("{} #{} {} {} (tag {})", call.name(), operation.number, call.sends() ? "to" : "from",
                     end_text(call), call.tag);
}

}  // namespace collectives
