// Greeting: first bytes on a TCP connection between two ranks. In the greeting, each end proves that it belongs to the
// job. The connector is the rank that connects, and the listener is the rank that accepts the connection. A greeting
// has three messages:
//
//   hello       connector to listener   the two ranks, the channel, and a nonce
//   challenge   listener to connector   another nonce, and the listener's proof
//   answer      connector to listener   the connector's proof
//
// A nonce is 128 random bits. A proof is a hash of the hello, the nonce of the challenge, and the side (connector or
// listener). The key of the hash is the secret of the job (wire_secret.hpp), which neither end sends. The connector
// sends its proof only after it has checked the proof of the listener. A recorded proof is useless on another
// connection, because the nonces differ.
//
// Price: the ranks do not detect a process that relays all bytes between them.
#pragma once

#include <array>
#include <cstdint>

#include "base/random_word.hpp"
#include "transport/wire_secret.hpp"

namespace collectives::tcp_greeting {

using Nonce = std::array<std::uint64_t, 2>;
inline Nonce make_nonce() { return {random_word(), random_word()}; }

/// First message of a greeting. It has no version number, because the ranks have already compared their versions
/// through the bootstrap.
struct Hello {
  std::array<char, 8> magic{'c', 'o', 'l', 'l', 'w', 'i', 'r', '2'};
  Nonce nonce{};
  std::int32_t from = 0, to = 0, channel = 0, reserved = 0;
};

struct Challenge {
  Nonce nonce{};
  std::uint64_t proof = 0;
};

enum class Side : std::uint64_t { connector = 1, listener };

/// Returns the proof of one side: a hash of the side and of all bytes of the greeting except the proofs.
inline std::uint64_t proof_of(Side side, const WireSecret& secret, const Hello& hello, const Nonce& challenge) {
  struct Proven {
    Side side;
    Hello hello;
    Nonce challenge;
  };
  return secret.hash(Proven{side, hello, challenge});
}

}  // namespace collectives::tcp_greeting
