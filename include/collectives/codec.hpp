// Codecs: convert f32 values to fewer bytes for messages to other hosts, and convert received bytes to f32 values.
//
//   comm.all_reduce(gradient, ReduceOp::average, {.wire = DataType::bf16});
//
// A codec has no state. The number of encoded bytes depends only on the number of elements. The encoded bytes depend
// only on the values. A codec only converts arrays. The library decides which ranks exchange and add values.
//
// In an all-reduce with a codec, the vector is divided into parts, and each part has one rank as its owner. The owner
// adds the contributions in f32 in rank order. In hierarchical algorithms, the ranks of each host first add their
// contributions, and the owner adds the sums of the hosts in host order. For an average, the owner divides the total.
// It encodes the result and sends it. The other ranks decode the result. The owner stores the decoded values, too. All
// ranks therefore get the same bits.
//
// A program can define its own codec, as a class derived from Codec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// Encodes f32 values as bytes and decodes them. The library assumes these properties and does not check them:
///
/// Law. encode(decode(wire)) == wire for all bytes `wire` that encode() has written. A value that was encoded once is
/// therefore not changed when it is decoded and encoded again. All ranks thus get the same bits, however often a value
/// is passed on.
///
/// Blocks. Elements are coded in blocks of block() elements. The last block may be shorter. Each block is coded by
/// itself. The encoded bytes can therefore be cut between blocks. A cut after m elements lies encoded_bytes(m) bytes
/// from the start.
///
/// Rate. encoded_bytes() depends on the count alone. n blocks take n times the bytes of one block, and 0 elements take
/// 0 bytes.
///
/// Agreement. Every machine encodes the same values as the same bytes. All ranks pass codecs with equal names.
///
/// encode() and decode() run on the thread of any call, or on the progress thread. They must not call the library. The
/// values are aligned for float. The encoded bytes may have any alignment. The object must outlive the calls that use
/// it.
class COLLECTIVES_EXPORT Codec {
 public:
  virtual ~Codec();
  /// Returns the name, which plans and errors show. Ranks compare it.
  virtual std::string_view name() const noexcept = 0;
  /// Returns the number of elements in a block.
  virtual std::size_t block() const noexcept { return 1; }
  /// Returns the number of bytes of `count` encoded elements.
  virtual std::size_t encoded_bytes(std::size_t count) const noexcept = 0;
  /// Writes encoded_bytes(values.size()) bytes to `wire`.
  virtual void encode(std::span<const float> values, std::byte* wire) const noexcept = 0;
  /// Reads encoded_bytes(values.size()) bytes from `wire`. The bytes are from another process. Therefore, every byte
  /// sequence must decode to some values.
  virtual void decode(const std::byte* wire, std::span<float> values) const noexcept = 0;
};

/// Codec "bf16": 2 bytes per element, relative error at most 2^-8. Rounds to nearest even by integer arithmetic, so the
/// result does not depend on the processor or its modes. Denormals are kept, and NaN stays NaN.
COLLECTIVES_EXPORT const Codec& bf16_codec() noexcept;
/// Codec "f16": 2 bytes per element. The relative error is at most 2^-11 between 2^-14 and 65504. Larger magnitudes
/// become infinity.
COLLECTIVES_EXPORT const Codec& f16_codec() noexcept;
/// Codec "int8": blocks of 256 elements with one scale, which take 1 byte per element and 4 bytes per block. The error
/// is at most 1/254 of the greatest magnitude in the block, plus the rounding of the scale. A block that contains NaN
/// or infinity becomes NaN.
COLLECTIVES_EXPORT const Codec& int8_codec() noexcept;
/// Codec "mx_f8e4m3": blocks of 32 elements in the MX format of the Open Compute Project. A block takes 33 bytes: the
/// exponent of a power of two, then an f8e4m3 per element, in units of that power. The error of an element is at most
/// 1/16 of its magnitude, or 2^-17 of the greatest magnitude in the block if that is more. A block that contains NaN or
/// infinity becomes NaN.
COLLECTIVES_EXPORT const Codec& mx_f8e4m3_codec() noexcept;
/// Codec "mx_f8e5m2": as mx_f8e4m3, with elements in f8e5m2. The error of an element is at most 1/8 of its magnitude,
/// or 2^-31 of the greatest magnitude in the block if that is more.
COLLECTIVES_EXPORT const Codec& mx_f8e5m2_codec() noexcept;

/// Returns the library's codec of this name, or null if there is none.
COLLECTIVES_EXPORT const Codec* find_codec(std::string_view name) noexcept;
/// Returns all codecs of the library.
COLLECTIVES_EXPORT std::span<const Codec* const> codecs() noexcept;

/// Statistics of the encoded messages of a rank. The error that a codec causes is documented at the codec.
struct CodingReport {
  std::uint64_t raw_bytes = 0;   ///< Bytes of the f32 values in the messages that this rank sent.
  std::uint64_t sent_bytes = 0;  ///< Encoded bytes of these messages.
  double seconds = 0;            ///< Seconds spent on encoding sent values, and on decoding and adding received ones.
};

/// Format of a call's values on the wire: a type or a codec.
class WireFormat {
 public:
  /// Sends the values unchanged.
  constexpr WireFormat() = default;
  /// Sends f32 values as DataType::bf16 or DataType::f16. The type of the values itself sends them unchanged. A call
  /// with any other type throws Error{invalid_argument}.
  constexpr WireFormat(DataType type) noexcept : type_(type), as_type_(true) {}  // NOLINT(google-explicit-constructor)
  constexpr WireFormat(const Codec& codec) noexcept : codec_(&codec) {}          // NOLINT(google-explicit-constructor)
  WireFormat(const Codec&&) = delete;

  constexpr bool as_type() const noexcept { return as_type_; }
  constexpr DataType type() const noexcept { return type_; }
  constexpr const Codec* codec() const noexcept { return codec_; }
  constexpr bool operator==(const WireFormat&) const = default;

 private:
  const Codec* codec_ = nullptr;
  DataType type_ = DataType::f32;
  bool as_type_ = false;
};

}  // namespace collectives
