// Implementation of the control channel over UCX, by which ranks send short texts, such as reports of failures.
//
// The texts travel apart from the data of collectives. UCX may deliver them in another order. Each text therefore has a
// number. If a text arrives too early, the receiver stores it until all texts with lower numbers have arrived.
#include "ucx/ucx_control_channel.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace collectives {

UcxControlChannel::UcxControlChannel(UcxConnections& connections)
    : connections_(connections), peers_(connections.all().size()) {
  const ucx::Quiet quiet;
  connections_.set_handler(
      ucx::kControl,
      [](void* self, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
         const ucp_am_recv_param_t* param) {
        // Drops a message whose payload would have to be fetched, because this library sends each text with the header.
        if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
        static_cast<UcxControlChannel*>(self)->on_control(header, header_bytes,
                                                          {static_cast<const char*>(data), bytes});
        return UCS_OK;
      },
      this);
}

void UcxControlChannel::post(Rank to, std::string_view text) {
  if (!connections_.is_open()) return;
  std::erase_if(out_, [](const Control& control) { return !control.busy; });
  UcxConnections::Connection& receiver = connections_.at(to);
  if (receiver.lost || out_.size() >= kMaxControlsInFlight) return;
  Control& control = out_.emplace_back();
  control.connections = &connections_;
  control.to = to;
  control.text = text;
  control.header = connections_.header();
  control.header.number = peers_[static_cast<std::size_t>(to)].next_out++;
  receiver.flushed = false;
  connections_.send(receiver, ucx::kControl, control, control.text.data(), control.text.size(), UCP_AM_SEND_FLAG_EAGER,
                    UcxConnections::sent);
}

bool UcxControlChannel::has_unsent(Rank to) {
  return std::ranges::any_of(out_, [to](const Control& control) { return control.busy && control.to == to; });
}

void UcxControlChannel::on_control(const void* header, std::size_t header_bytes, std::string_view text) noexcept {
  ucx::Header theirs;
  UcxConnections::Connection* from = connections_.sender(header, header_bytes, theirs);
  if (from == nullptr || !from->heard) return;
  Peer& peer = peers_[theirs.from];
  // Drops a text that no rank of the job sends: one that arrives a second time, is too far ahead, or is too long.
  if (static_cast<std::uint16_t>(theirs.number - peer.next_in) >= kMaxControlsInFlight || text.size() > kMostBytes)
    return;
  try {
    peer.early.insert_or_assign(theirs.number, std::string(text));
    while (true) {
      const auto next = peer.early.find(peer.next_in);
      if (next == peer.early.end()) break;
      store(from->rank, std::move(next->second));
      peer.early.erase(next);
      ++peer.next_in;
    }
  } catch (const std::bad_alloc&) {
    connections_.lose(*from, UCS_ERR_NO_MEMORY);
  }
}

}  // namespace collectives
