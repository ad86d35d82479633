// Coding: form of the elements in messages. Messages hold plain values, or values that a codec has encoded in fewer
// bytes. A Coding also computes the length of a message.
#pragma once

#include <cstddef>

#include "collectives/codec.hpp"
#include "collectives/plan.hpp"
#include "steps/step.hpp"

namespace collectives {

struct Coding {
  std::size_t element = 1;       ///< Size of a plain element in bytes.
  const Codec* codec = nullptr;  ///< Codec of the messages. Null: messages hold plain values.

  /// Returns the size in bytes of a message of `count` elements.
  std::size_t bytes(std::size_t count) const noexcept {
    return codec == nullptr ? count * element : codec->encoded_bytes(count);
  }
  /// Returns how many times a Step (an action of a rank) encodes or decodes its range. A reduction decodes once per
  /// source, and encodes once if it sends the result. A Step that sends this rank's own value encodes once. A Step that
  /// stores a value without a reduction decodes once. A Step that passes a received message on encodes nothing.
  std::size_t codings(const Step& step) const noexcept {
    if (codec == nullptr) return 0;
    const std::size_t out = step.to.empty() ? 0 : 1, kept = step.destination == Place::nowhere ? 0 : 1;
    return step.reduce ? step.from.size() + out : step.from.empty() ? out + kept : kept;
  }
};

/// Returns the form of the elements in the messages of a plan.
inline Coding coding_of(const Request& request, const Plan& plan) noexcept {
  return {element_bytes_of(request.type, request.op), plan.coded ? request.codec : nullptr};
}

}  // namespace collectives
