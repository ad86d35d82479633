// Implementation of waits_text(), which returns a text about ranks that wait for point-to-point messages of one
// another. The text names one rank, then the rank for which the first one waits, and so on. It thus shows ranks that
// wait for one another in a cycle.
#include "monitoring/message_wait.hpp"

#include <fmt/format.h>

#include <vector>

namespace collectives {

std::string wait_text(Rank rank, const MessageWait& wait) {
  return fmt::format("rank {} waits to {} {}, tag {}", rank,
                     wait.kind == MessageWait::Kind::send ? "send to" : "receive from",
                     wait.peer == any_source ? "any rank" : fmt::format("rank {}", wait.peer), wait.tag);
}

std::vector<Rank> awaited_ranks(Rank first, const MessageWait& own, int ranks,
                                const std::function<MessageWait(Rank)>& wait_of) {
  std::vector<Rank> awaited;
  std::vector<bool> named(static_cast<std::size_t>(ranks));
  named[static_cast<std::size_t>(first)] = true;
  for (MessageWait wait = own; wait.kind != MessageWait::Kind::none; wait = wait_of(wait.peer)) {
    if (wait.peer < 0 || wait.peer >= ranks || named[static_cast<std::size_t>(wait.peer)]) break;
    named[static_cast<std::size_t>(wait.peer)] = true;
    awaited.push_back(wait.peer);
  }
  return awaited;
}

std::string waits_text(Rank first, const MessageWait& own, int ranks, const std::function<MessageWait(Rank)>& wait_of) {
  std::string text;
  const auto add = [&](Rank rank, const MessageWait& wait) {
    if (wait.kind == MessageWait::Kind::none) return;
    const bool sends = wait.kind == MessageWait::Kind::send;
    text += fmt::format("{}rank {} waits to {} {}", text.empty() ? "" : ", ", rank, sends ? "send to" : "receive from",
                        wait.peer == any_source ? "any rank" : std::to_string(wait.peer));
  };
  add(first, own);
  for (const Rank rank : awaited_ranks(first, own, ranks, wait_of)) add(rank, wait_of(rank));
  return text;
}

}  // namespace collectives
