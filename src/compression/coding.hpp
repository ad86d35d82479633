// What a message holds: elements as they are, or what a codec makes of them.
#pragma once

#include <cstddef>

#include "collectives/codec.hpp"
#include "collectives/plan.hpp"
#include "steps/step.hpp"

namespace collectives {

struct Coding {
  std::size_t element = 1;       ///< bytes of a value
  const Codec* codec = nullptr;  ///< null: messages hold values

  /// Of a message that holds `count` elements.
  std::size_t bytes(std::size_t count) const noexcept {
    return codec == nullptr ? count * element : codec->encoded_bytes(count);
  }
  /// How often the values of a Step are coded: encoded once for all who get them, decoded as often as they come.
  std::size_t codings(const Step& step) const noexcept {
    if (codec == nullptr) return 0;
    const std::size_t out = step.to.empty() ? 0 : 1, kept = step.destination == Place::nowhere ? 0 : 1;
    return step.reduce ? step.from.size() + out : step.from.empty() ? out + kept : kept;
  }
};

/// Of the messages of a plan.
inline Coding coding_of(const Request& request, const Plan& plan) noexcept {
  return {size_of(request.type), plan.coded ? request.codec : nullptr};
}

}  // namespace collectives
