// Functions that find collectives, types, ops and codecs by the names that users type on command lines. An unknown name
// is an error that lists the valid names.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"
#include "core/collective.hpp"

namespace collectives {

inline std::string_view name_of(Collective collective) { return to_string(collective); }
inline std::string_view name_of(DataType type) { return to_string(type); }
inline std::string_view name_of(const ReduceOp& op) { return to_string(op.kind()); }
inline std::string_view name_of(const Codec* codec) { return codec->name(); }

/// Returns the names of all values as one text.
template <class Known>
std::string list_of(Known&& known) {
  const auto name_it = [](const auto& value) { return name_of(value); };
  return fmt::format("{}", fmt::join(known | std::views::transform(name_it), ", "));
}

/// Ops of the library, without user ops.
inline constexpr auto kOps = [] {
  std::array<ReduceOp, std::size(kReduceKinds) - 1> ops;
  std::size_t n = 0;
  for (const ReduceOp::Kind kind : kReduceKinds)
    if (kind != ReduceOp::Kind::user) ops[n++] = ReduceOp::of(kind);
  return ops;
}();

/// Returns the value of `known` with this name. Throws std::invalid_argument with the valid names if none has it.
template <class Known>
auto named(std::string_view what, std::string_view name, const Known& known) {
  const auto name_it = [](const auto& value) { return name_of(value); };
  const auto found = std::ranges::find(known, name, name_it);
  if (found == std::end(known))
    throw std::invalid_argument(fmt::format("{} '{}' is unknown; valid: {}", what, name, list_of(known)));
  return *found;
}

/// Throws std::invalid_argument if the collective reduces, and `op` does not exist for `type`. The text lists the valid
/// types.
inline void check_op(Collective collective, DataType type, const ReduceOp& op) {
  if (!reduces(collective) || supports(type, op)) return;
  const auto has_op = [&](DataType one) { return supports(one, op); };
  throw std::invalid_argument(fmt::format("--op {} has no {}; valid: {}", name_of(op), name_of(type),
                                          list_of(kDataTypes | std::views::filter(has_op))));
}

/// Returns the codec with this name, or null for "". Throws std::invalid_argument if no codec has it, or if `type` is
/// not f32.
inline const Codec* codec_named(std::string_view name, DataType type) {
  if (name.empty()) return nullptr;
  const Codec* const codec = find_codec(name);
  if (codec == nullptr)
    throw std::invalid_argument(fmt::format("--wire '{}' is unknown; valid: {}", name, list_of(codecs())));
  if (type != DataType::f32)
    throw std::invalid_argument(fmt::format("--wire {} carries f32, not {}", name, to_string(type)));
  return codec;
}

}  // namespace collectives
