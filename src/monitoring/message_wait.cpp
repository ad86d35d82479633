// Implementation of waits_text(), which describes ranks that wait for point-to-point messages of one another. It starts
// with one rank, continues with the rank for which that rank waits, and so on. The text thus shows ranks that wait in a
// cycle.
#include "monitoring/message_wait.hpp"

#include <fmt/format.h>

#include <vector>

namespace collectives {

std::string waits_text(Rank first, const MessageWait& own, int ranks, const std::function<MessageWait(Rank)>& wait_of) {
  std::string text;
  std::vector<bool> named(static_cast<std::size_t>(ranks));
  MessageWait wait = own;
  for (Rank rank = first; wait.kind != MessageWait::Kind::none; wait = wait_of(rank)) {
    named[static_cast<std::size_t>(rank)] = true;
    const bool sends = wait.kind == MessageWait::Kind::send;
    text += fmt::format("{}rank {} waits to {} {}", text.empty() ? "" : ", ", rank, sends ? "send to" : "receive from",
                        wait.peer == any_source ? "any rank" : std::to_string(wait.peer));
    rank = wait.peer;
    if (rank < 0 || rank >= ranks || named[static_cast<std::size_t>(rank)]) break;
  }
  return text;
}

}  // namespace collectives
