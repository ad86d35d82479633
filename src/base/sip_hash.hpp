// SipHash-2-4: a hash of bytes under a secret key of 128 bits (Aumasson and Bernstein, 2012). A process that does not
// know the key cannot compute a hash. It also cannot find the key from hashes that it has seen.
#pragma once

#include <cstdint>
#include <string_view>

namespace collectives {

struct SipKey {
  std::uint64_t first = 0, second = 0;
};

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept;

}  // namespace collectives
