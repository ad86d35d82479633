// Control channel over UCX: exchanges short texts, such as reports of failures, with the ranks of other hosts. The
// texts travel apart from the data of collectives. Each text is the payload of an active message, a message whose
// arrival runs a handler in the receiving process.
//
// UCX does not promise that active messages arrive in order. The sender therefore numbers the texts to each peer, and
// the receiver sorts them by number.
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
  /// Sets the handler of control messages. `connections` must outlive this object, and must be closed before this
  /// object is destroyed.
  explicit UcxControlChannel(UcxConnections& connections);

  /// Sends `text` to `to`. Drops the text if the peer is lost, the connections are closed, or too many texts are
  /// unsent.
  void post(Rank to, std::string_view text) override;
  bool has_unsent(Rank to) override;
  void read() override { connections_.progress(); }

 private:
  static constexpr std::size_t kMaxControlsInFlight = 256;
  static constexpr std::size_t kMostBytes = 1 << 20;  // Maximum length in bytes of a received text.

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
