// Codecs: how f32 values travel in fewer bytes.
//
//   comm.all_reduce(gradient, ReduceOp::average, {.wire = DataType::bf16});
//
// A codec is fixed-rate and stateless: so many elements always make so many bytes, and what they are depends on nothing
// but the values. It sees spans only; which rank sends what to whom, and who adds, is the library's. Owners of a part
// add in f32 in rank order, scale once, encode once, and keep what the others decode, so that all ranks end with the
// same bits.
//
// A program's own codec derives from Codec; the library's own do no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

/// How f32 values become bytes and f32 values again. What must hold, and is assumed:
///
///   Law        encode(decode(wire)) == wire, for every wire that encode() has made: what went through it once passes
///              unharmed as often as it likes, so all ranks hold the same bits however often a value is handed on.
///   Blocks     elements are coded in blocks of block(), the last of which may be shorter, each for itself: at every
///              multiple of block() the bytes can be cut, encoded_bytes(that multiple) from their beginning.
///   Rate       encoded_bytes() depends on the count alone: n blocks make n times the bytes of one, nothing makes none.
///   Agreement  every machine makes the same bytes of the same values, and every rank passes a codec of one name.
///
/// Both functions run on the calling thread of any rank and may not call the library. Values lie aligned, the wire
/// anywhere. The object outlives the calls that use it.
class COLLECTIVES_EXPORT Codec {
 public:
  virtual ~Codec();
  /// Shown in plans and errors; part of what ranks compare.
  virtual std::string_view name() const noexcept = 0;
  /// Elements that are coded together.
  virtual std::size_t block() const noexcept { return 1; }
  /// Bytes of `count` elements.
  virtual std::size_t encoded_bytes(std::size_t count) const noexcept = 0;
  /// Writes encoded_bytes(values.size()) bytes.
  virtual void encode(std::span<const float> values, std::byte* wire) const noexcept = 0;
  /// Reads encoded_bytes(values.size()) bytes. They come from another process: any bytes give some values.
  virtual void decode(const std::byte* wire, std::span<float> values) const noexcept = 0;
};

/// 2 bytes an element: rounded to nearest even by integer arithmetic, whatever the processor and its modes; denormals
/// are kept, NaN stays NaN. Relative error 2^-8 at most.
COLLECTIVES_EXPORT const Codec& bf16_codec() noexcept;
/// 2 bytes an element, relative error 2^-11 at most between 2^-14 and 65504; what is greater becomes infinity.
COLLECTIVES_EXPORT const Codec& f16_codec() noexcept;
/// Blocks of 256 elements with one scale: 1 byte an element and 4 a block. Error 1/254 of the greatest magnitude in the
/// block, and a little; a block that holds NaN or infinity becomes NaN.
COLLECTIVES_EXPORT const Codec& int8_codec() noexcept;

/// The library's own, by name; null where there is none.
COLLECTIVES_EXPORT const Codec* find_codec(std::string_view name) noexcept;
/// All of them.
COLLECTIVES_EXPORT std::span<const Codec* const> codecs() noexcept;

/// Of the messages of a rank that a codec made shorter. How far they may be off is said at each codec.
struct CodingReport {
  std::uint64_t raw_bytes = 0;   ///< of the values in the messages that it sent
  std::uint64_t sent_bytes = 0;  ///< of the messages
  double seconds = 0;            ///< encoding what went out, decoding and adding what came in
};

/// What the values of a call travel as: a type, or a codec.
class WireFormat {
 public:
  /// As they are.
  constexpr WireFormat() = default;
  /// DataType::bf16 or f16 for f32 values; the type of the values itself: as they are. Others are invalid_argument.
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
