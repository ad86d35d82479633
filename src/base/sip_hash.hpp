// SipHash-2-4: a hash of bytes under a secret key of 128 bits. A process without the key can neither compute the hash
// of new bytes nor find the key from hashes that it has seen (Aumasson and Bernstein, 2012).
#pragma once

#include <cstdint>
#include <string_view>

namespace collectives {

struct SipKey {
  std::uint64_t first = 0, second = 0;
};

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept;

}  // namespace collectives
