// Greeting: the first bytes on a TCP connection between two ranks. By them, each end proves that it belongs to the job.
//
//   hello       connector to listener   the two ranks, the channel, and a nonce
//   challenge   listener to connector   another nonce, and the listener's proof
//   answer      connector to listener   the connector's proof
//
// A nonce is 128 random bits. A proof is a hash of hello, challenge nonce and side under the secret of the job
// (wire_secret.hpp). The connector sends its proof only after it has checked that of the listener. Neither end shows
// the secret. A proof that another process has recorded proves nothing on the next connection, because the nonces
// differ.
//
// Price: a process that relays the bytes between two ranks is not noticed.
#pragma once

#include <array>
#include <cstdint>

#include "base/random_word.hpp"
#include "transport/wire_secret.hpp"

namespace collectives::tcp_greeting {

using Nonce = std::array<std::uint64_t, 2>;
inline Nonce make_nonce() { return {random_word(), random_word()}; }

/// Both ends run the same version of the library, because an exchange through the bootstrap has compared the versions.
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

/// Returns the proof of one side. The hash covers all bytes of the greeting that are no proofs.
inline std::uint64_t proof_of(Side side, const WireSecret& secret, const Hello& hello, const Nonce& challenge) {
  struct Proven {
    Side side;
    Hello hello;
    Nonce challenge;
  };
  return secret.hash(Proven{side, hello, challenge});
}

}  // namespace collectives::tcp_greeting
