// Kinds and contents of the control messages of the TCP transport itself. A control message is a short text between two
// ranks. It travels on the control connection, a TCP connection that carries no data.
//
// The transport sends short messages by UDP datagrams. Its own control messages serve the setup and the retransmission
// of these datagrams. Each of them begins with its kind. A probe is a datagram that tests whether datagrams arrive.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <type_traits>

namespace collectives::tcp_control {

// Kinds of messages. Each kind begins with a zero byte, because texts of the transport's caller never begin with a zero
// byte.
inline constexpr std::string_view kPort{"\0p", 2};            // Port of the sender's UDP socket; 0 if it has none.
inline constexpr std::string_view kProbed{"\0b", 2};          // Report that the sender has sent a probe.
inline constexpr std::string_view kHeard{"\0h", 2};           // Report whether the reporting rank has received a probe.
inline constexpr std::string_view kRetransmission{"\0a", 2};  // Copy of a message that was sent as a datagram.
inline constexpr std::string_view kAcknowledged{"\0t", 2};    // Acknowledgement of a retransmitted message.
/// Content of a message kAcknowledged, after the kind.
struct Acknowledged {
  std::uint32_t next = 0;  // Number of the next message that the acknowledging rank takes.
  std::uint32_t lost = 0;  // 1 if the message had not arrived as a datagram, else 0.
};

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
/// Returns the value that `text` consists of, or nothing if the text has another length. Reads no bool, because other
/// bytes than 0 and 1 are none.
template <class T>
requires(!std::is_same_v<T, bool>) std::optional<T> read_as(std::string_view text) {
  T value{};
  if (text.size() != sizeof value) return std::nullopt;
  std::memcpy(&value, text.data(), sizeof value);
  return value;
}

/// Returns whether a socket call that failed with `code` may succeed later.
inline bool would_block(int code) { return code == EAGAIN || code == EWOULDBLOCK || code == EINTR; }

}  // namespace collectives::tcp_control
