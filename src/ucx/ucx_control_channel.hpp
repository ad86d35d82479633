// Control channel of the wire over UCX: each control message is an active message with its text as the payload.
//
// UCX does not promise that active messages arrive in order. The texts to a peer are therefore numbered, and the
// receiver sorts them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control_channel.hpp"
#include "ucx/ucx_connections.hpp"

namespace collectives {

class UcxControlChannel final : public ControlChannel {
 public:
  /// Sets the handler of control messages. `connections` must outlive this object, and must be closed before.
  explicit UcxControlChannel(UcxConnections& connections);

  /// Drops the text also if the peer is lost, or if the connections are closed.
  void post(Rank to, std::string_view text) override;
  bool has_unsent(Rank to) override;
  void read() override { connections_.progress(); }

 private:
  static constexpr std::size_t kMaxControlsInFlight = 256;

  struct Control : UcxConnections::Outgoing {
    Rank to = 0;
    std::string text;
  };
  struct Peer {
    std::uint16_t next_out = 0, next_in = 0;
    std::map<std::uint16_t, std::string> early;  // Texts that arrived before their turn.
  };

  void on_control(const void* header, std::size_t header_bytes, std::string_view text) noexcept;

  UcxConnections& connections_;
  std::vector<Peer> peers_;
  std::list<Control> out_;
};

}  // namespace collectives
