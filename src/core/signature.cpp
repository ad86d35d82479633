// Implementation of signatures. A signature holds the arguments of a call that must be equal on all ranks, so that
// ranks can compare them. This file packs a signature into 64-bit words, unpacks it, and computes its hash.
#include "core/signature.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>

namespace collectives {

WireName::WireName(std::string_view name, std::uint64_t detail) noexcept
    : hash(hash_bytes(name.data(), name.size(), detail)) {
  std::copy_n(name.begin(), std::min(name.size(), sizeof text), text);
}
std::string_view WireName::view() const noexcept { return {text, ::strnlen(text, sizeof text)}; }

// A packed signature has 6 bits for the collective, 5 bits for the type and 5 bits for the op. All values must fit into
// these bits.
static_assert(std::size(kCollectives) <= 64 && std::size(kDataTypes) <= 32 && std::size(kReduceKinds) <= 32);

SignatureWords pack(const Signature& s) noexcept {
  std::uint64_t text[2];
  static_assert(sizeof text == sizeof s.wire.text);
  std::memcpy(text, s.wire.text, sizeof text);
  const std::uint64_t flags = (s.deterministic ? 1u : 0u) | (s.has_counts ? 2u : 0u) | (s.force ? 4u : 0u) |
                              (s.wire == WireName() ? 0u : 8u) | (s.refused ? 16u : 0u) | (s.split ? 32u : 0u);
  return {s.count,
          static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.type) << 6 |
              static_cast<std::uint64_t>(s.op) << 11 | static_cast<std::uint64_t>(s.backend) << 16 | flags << 22 |
              static_cast<std::uint64_t>(s.memory) << 28 | static_cast<std::uint64_t>(s.root) << 32,
          s.op_detail,
          s.counts_hash,
          s.wire.hash,
          text[0],
          text[1]};
}

Signature unpack(const SignatureWords& words) noexcept {
  const std::uint64_t w = words[1];
  WireName wire;
  if ((w >> 22 & 8) != 0) wire.hash = words[4];
  if ((w >> 22 & 8) != 0) std::memcpy(wire.text, &words[5], sizeof wire.text);
  return {.collective = static_cast<Collective>(w & 0x3f),
          .type = static_cast<DataType>(w >> 6 & 0x1f),
          .op = static_cast<ReduceOp::Kind>(w >> 11 & 0x1f),
          .backend = static_cast<std::uint8_t>(w >> 16 & 0x3f),
          .deterministic = (w >> 22 & 1) != 0,
          .has_counts = (w >> 22 & 2) != 0,
          .memory = static_cast<Memory>(w >> 28 & 0xf),
          .root = static_cast<Rank>(w >> 32),
          .count = words[0],
          .op_detail = words[2],
          .counts_hash = words[3],
          .wire = wire,
          .force = (w >> 22 & 4) != 0,
          .refused = (w >> 22 & 16) != 0,
          .split = (w >> 22 & 32) != 0};
}

namespace {
std::atomic<std::uint64_t (*)(const Signature&) noexcept> hash_of_tests = nullptr;
}  // namespace

void replace_hash_for_tests(std::uint64_t (*hash)(const Signature&) noexcept) noexcept { hash_of_tests = hash; }

std::uint64_t hash_of(const Signature& signature) noexcept {
  if (auto* const replacement = hash_of_tests.load(std::memory_order_relaxed)) return replacement(signature);
  const SignatureWords words = pack(signature);
  std::uint64_t hash = mix(words[0] + 0x9e3779b97f4a7c15ULL);
  hash = mix(hash ^ words[1]);
  return mix(hash ^ (words[2] + words[3] * 0x9e3779b97f4a7c15ULL + words[4] * 0xff51afd7ed558ccdULL));
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint64_t hash = mix(seed + bytes);
  for (; bytes >= 8; at += 8, bytes -= 8) {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    hash = mix(hash ^ word) + 0x9e3779b97f4a7c15ULL;
  }
  std::uint64_t rest = 0;
  if (bytes > 0) std::memcpy(&rest, at, bytes);
  return mix(hash ^ rest);
}

}  // namespace collectives
