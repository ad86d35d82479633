// Implementation of signatures, the arguments of a call that ranks compare. It packs them into 64-bit words, hashes
// them, and describes in an error text how the signatures of ranks differ.
#include "core/signature.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/text.hpp"
#include "collectives/plan.hpp"

namespace collectives {

WireName::WireName(std::string_view name, std::uint64_t detail) noexcept
    : hash(hash_bytes(name.data(), name.size(), detail)) {
  std::copy_n(name.begin(), std::min(name.size(), sizeof text), text);
}
std::string_view WireName::view() const noexcept { return {text, ::strnlen(text, sizeof text)}; }

SignatureWords pack(const Signature& s) noexcept {
  std::uint64_t text[2];
  static_assert(sizeof text == sizeof s.wire.text);
  std::memcpy(text, s.wire.text, sizeof text);
  const std::uint64_t flags =
      (s.deterministic ? 1u : 0u) | (s.has_counts ? 2u : 0u) | (s.force ? 4u : 0u) | (s.wire == WireName() ? 0u : 8u);
  return {s.count,
          static_cast<std::uint64_t>(s.collective) | static_cast<std::uint64_t>(s.type) << 8 |
              static_cast<std::uint64_t>(s.op) << 12 | static_cast<std::uint64_t>(s.backend) << 16 | flags << 22 |
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
  return {.collective = static_cast<Collective>(w & 0xff),
          .type = static_cast<DataType>(w >> 8 & 0xf),
          .op = static_cast<ReduceOp::Kind>(w >> 12 & 0xf),
          .backend = static_cast<std::uint8_t>(w >> 16 & 0x3f),
          .deterministic = (w >> 22 & 1) != 0,
          .has_counts = (w >> 22 & 2) != 0,
          .memory = static_cast<Memory>(w >> 28 & 0xf),
          .root = static_cast<Rank>(w >> 32),
          .count = words[0],
          .op_detail = words[2],
          .counts_hash = words[3],
          .wire = wire,
          .force = (w >> 22 & 4) != 0};
}

std::uint64_t hash_of(const Signature& signature) noexcept {
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

std::string describe_mismatch(const std::vector<Arrived>& arrived) {
  const auto differ = [&](auto&& field) {
    for (const Arrived& a : arrived)
      if (field(a.signature) != field(arrived.front().signature)) return true;
    return false;
  };
  const bool collective = differ([](const Signature& s) { return s.collective; });
  const bool op = differ([](const Signature& s) { return std::pair(s.op, s.op_detail); });
  const bool root = differ([](const Signature& s) { return s.root; });
  const bool backend = differ([](const Signature& s) { return s.backend; });
  const bool deterministic = differ([](const Signature& s) { return s.deterministic; });
  const bool counts = differ([](const Signature& s) { return std::pair(s.has_counts, s.counts_hash); });
  const bool wire = differ([](const Signature& s) { return std::pair(s.wire.view(), s.wire.hash); });
  const bool wire_detail = wire && !differ([](const Signature& s) { return s.wire.view(); });
  const bool force = differ([](const Signature& s) { return s.force; });
  const bool memory = differ([](const Signature& s) { return s.memory; });
  const std::vector<std::string_view> backends = backend_names();

  const auto describe = [&](const Signature& s) {
    std::string text;
    if (collective) text += fmt::format("{} of ", to_string(s.collective));
    text += fmt::format("{} x {}", s.count, to_string(s.type));
    if (memory) text += fmt::format(" in {} memory", to_string(s.memory));
    if (op) text += fmt::format(" {}", to_string(s.op));
    if (op && s.op == ReduceOp::Kind::pre_scaled_sum) text += fmt::format(" by {}", std::bit_cast<double>(s.op_detail));
    if (root) text += fmt::format(" root {}", s.root);
    if (backend) text += fmt::format(" backend {}", s.backend < backends.size() ? backends[s.backend] : "?");
    if (deterministic) text += s.deterministic ? " deterministic" : " not deterministic";
    if (wire) text += s.wire == WireName() ? " not compressed" : fmt::format(" compressed by {}", s.wire.view());
    if (wire_detail && !(s.wire == WireName())) text += fmt::format(" (another kind, {:08x})", s.wire.hash >> 32);
    if (force) text += s.force ? " by force" : " not by force";
    if (counts && s.has_counts) text += fmt::format(" counts {:08x}", s.counts_hash >> 32);
    if (counts && !s.has_counts)
      text += s.counts_hash == 0 ? " in equal parts" : fmt::format(" of tensors {:08x}", s.counts_hash >> 32);
    return text;
  };

  // Groups ranks with equal arguments. The smallest group comes first, because its ranks probably made the mistake.
  std::vector<std::pair<std::string, std::vector<Rank>>> groups;
  for (const Arrived& a : arrived) {
    const std::string text = describe(a.signature);
    auto group = groups.begin();
    while (group != groups.end() && group->first != text) ++group;
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(a.rank);
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::string text;
  for (const auto& [what, ranks] : groups)
    text += fmt::format("{}{} passed {}", text.empty() ? "" : ", ", ranks_text(ranks), what);
  return text;
}

}  // namespace collectives
