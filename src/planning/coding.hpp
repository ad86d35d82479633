// Coding: states how the elements in messages are represented, plain or encoded by a codec, and computes the length of
// messages.
#pragma once

#include <cstddef>

#include "collectives/codec.hpp"
#include "collectives/plan.hpp"
#include "steps/step.hpp"

namespace collectives {

struct Coding {
  std::size_t element = 1;       ///< Size of a value in bytes.
  const Codec* codec = nullptr;  ///< Codec of the messages. Null: messages hold plain values.

  /// Returns the size in bytes of a message of `count` elements.
  std::size_t bytes(std::size_t count) const noexcept {
    return codec == nullptr ? count * element : codec->encoded_bytes(count);
  }
  /// Returns how many times a Step (an action of a rank) encodes or decodes its values. The values are encoded once for
  /// all receivers, and decoded once for each received message whose values are used. A message that is passed on is
  /// not encoded again.
  std::size_t codings(const Step& step) const noexcept {
    if (codec == nullptr) return 0;
    const std::size_t out = step.to.empty() ? 0 : 1, kept = step.destination == Place::nowhere ? 0 : 1;
    return step.reduce ? step.from.size() + out : step.from.empty() ? out + kept : kept;
  }
};

/// Returns the coding of a plan's messages.
inline Coding coding_of(const Request& request, const Plan& plan) noexcept {
  return {size_of(request.type), plan.coded ? request.codec : nullptr};
}

}  // namespace collectives
