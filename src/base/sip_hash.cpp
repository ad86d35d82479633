// Implementation of SipHash-2-4, a hash with a secret key. The state of the hash has four words. The function mixes
// each word of the input into the state by two rounds. After the last word, it performs four more rounds.
#include "base/sip_hash.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

namespace collectives {
namespace {

struct SipState {
  std::uint64_t a, b, c, d;

  void round() noexcept {
    a += b;
    b = std::rotl(b, 13) ^ a;
    a = std::rotl(a, 32);
    c += d;
    d = std::rotl(d, 16) ^ c;
    a += d;
    d = std::rotl(d, 21) ^ a;
    c += b;
    b = std::rotl(b, 17) ^ c;
    c = std::rotl(c, 32);
  }
  void mix(std::uint64_t word) noexcept {
    d ^= word;
    round();
    round();
    a ^= word;
  }
};

}  // namespace

std::uint64_t sip_hash(const SipKey& key, std::string_view bytes) noexcept {
  // The constants are those of the algorithm: "somepseudorandomlygeneratedbytes" in ASCII.
  SipState state{key.first ^ 0x736f6d6570736575, key.second ^ 0x646f72616e646f6d, key.first ^ 0x6c7967656e657261,
                 key.second ^ 0x7465646279746573};
  const std::uint64_t length = bytes.size();
  for (; bytes.size() >= sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), sizeof word);
    state.mix(word);
  }
  std::uint64_t last = 0;
  if (!bytes.empty()) std::memcpy(&last, bytes.data(), bytes.size());
  state.mix(last | length << 56);
  state.c ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace collectives
