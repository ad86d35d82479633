// Functions that find collectives, types, ops and codecs by the names that users type on command lines. An unknown name
// is an error that lists the valid names.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"

namespace collectives {

inline std::string_view name_of(Collective collective) { return to_string(collective); }
inline std::string_view name_of(DataType type) { return to_string(type); }
inline std::string_view name_of(const ReduceOp& op) { return to_string(op.kind()); }

inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::average, ReduceOp::product,
                                    ReduceOp::min, ReduceOp::max,     ReduceOp::pre_scaled_sum(1.0)};

/// Returns the value of `known` with this name. Throws std::invalid_argument with the valid names if none has it.
template <class T, std::size_t n>
T named(std::string_view what, std::string_view name, const T (&known)[n]) {
  const auto name_it = [](const T& value) { return name_of(value); };
  const T* const found = std::ranges::find(known, name, name_it);
  if (found == std::end(known)) {
    throw std::invalid_argument(fmt::format("{} '{}' is unknown; valid: {}", what, name,
                                            fmt::join(known | std::views::transform(name_it), ", ")));
  }
  return *found;
}

/// Returns the codec with this name, or null for "". Throws std::invalid_argument if no codec has it, or if `type` is
/// not f32.
inline const Codec* codec_named(std::string_view name, DataType type) {
  if (name.empty()) return nullptr;
  const auto name_it = [](const Codec* codec) { return codec->name(); };
  const Codec* const codec = find_codec(name);
  if (codec == nullptr) {
    throw std::invalid_argument(fmt::format("--wire '{}' is unknown; valid: {}", name,
                                            fmt::join(codecs() | std::views::transform(name_it), ", ")));
  }
  if (type != DataType::f32)
    throw std::invalid_argument(fmt::format("--wire {} carries f32, not {}", name, to_string(type)));
  return codec;
}

}  // namespace collectives
