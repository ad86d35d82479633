// SipHash-2-4: a hash of bytes under a secret key of 128 bits (Aumasson and Bernstein, 2012). A process without the key
// cannot compute the hash of new bytes. Hashes that it has seen do not tell it the key.
#pragma once

#include <cstdint>
#include <string_view>

namespace collectives {

struct SipKey {
  std::uint64_t first = 0, second = 0;
};

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept;

}  // namespace collectives
