// Implementation of MessageLinks, which makes message links to all ranks. A link carries point-to-point messages
// through shared memory (HostLink) or over a wire between hosts (WireLink). An answer is an envelope that the receiver
// of a message sends back. If a link has no space for an answer, MessageLinks keeps the answer and sends it later.
#include "point_to_point/message_links.hpp"

#include <utility>

#include "point_to_point/wire_link.hpp"

namespace collectives {

MessageLinks::MessageLinks(const RankView& view, const Arena& arena, Wire* wire)
    : wire_(wire), ends_(view.world.members.size()) {
  for (const Rank rank : view.world.members) {
    End& one = end(rank);
    one.local = view.local_of(rank);
    if (view.host_of(rank) != view.grid.host) {
      one.link = std::make_unique<WireLink>(*wire, rank);
    } else {
      auto link = std::make_unique<HostLink>(arena, one.local);
      one.host = link.get();
      one.link = std::move(link);
    }
  }
}

void MessageLinks::answer(Rank to, const Envelope& envelope) {
  End& receiver = end(to);
  if (receiver.answers.empty() && receiver.link->send(envelope, nullptr, 0)) return;
  receiver.answers.push_back(envelope);
  kept_.fetch_add(1, std::memory_order_acq_rel);
}

bool MessageLinks::send_kept(End& to) {
  std::size_t sent = 0;
  while (sent < to.answers.size() && to.link->send(to.answers[sent], nullptr, 0)) ++sent;
  to.answers.erase(to.answers.begin(), to.answers.begin() + static_cast<std::ptrdiff_t>(sent));
  kept_.fetch_sub(sent, std::memory_order_acq_rel);
  return to.answers.empty();
}

void MessageLinks::forget_answers() noexcept {
  for (End& one : ends_) one.answers.clear();
  kept_.store(0, std::memory_order_release);
}

void MessageLinks::abandon() noexcept {
  forget_answers();
  if (wire_ != nullptr) wire_->abandon();
  wire_sends_.store(false, std::memory_order_release);
}

}  // namespace collectives
