// The codecs of this library: bf16, f16, int8, mx_f8e4m3 and mx_f8e5m2. A codec converts f32 values to fewer bytes
// before a message is sent, and back after it has arrived.
//
// The public interface Codec has functions for the name, for the number of encoded bytes, and for encoding and
// decoding. This file has one object per codec, which implements the interface by the functions of codec_kernels.hpp.

#include "collectives/codec.hpp"
#include "compression/codec_kernels.hpp"

namespace collectives {
namespace {

class HalfFloats final : public Codec {
 public:
  explicit HalfFloats(DataType type) : type_(type) {}
  std::string_view name() const noexcept override { return to_string(type_); }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return count * size_of(type_); }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    encode_half_floats(type_, values, wire);
  }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    decode_half_floats(type_, wire, values);
  }

 private:
  DataType type_;
};

class Scaled final : public Codec {
 public:
  std::string_view name() const noexcept override { return "int8"; }
  std::size_t block() const noexcept override { return kScaledBlock; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return scaled_bytes(count); }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override { encode_scaled(values, wire); }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override { decode_scaled(wire, values); }
};

class Mx final : public Codec {
 public:
  Mx(std::string_view name, DataType elements) : name_(name), elements_(elements) {}
  std::string_view name() const noexcept override { return name_; }
  std::size_t block() const noexcept override { return kMxBlock; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return mx_bytes(count); }
  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    encode_mx(elements_, values, wire);
  }
  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    decode_mx(elements_, wire, values);
  }

 private:
  std::string_view name_;
  DataType elements_;
};

}  // namespace

Codec::~Codec() = default;

// The objects are never destroyed, because a progress thread may use them until the process ends.
const Codec& bf16_codec() noexcept {
  static const Codec& codec = *new HalfFloats(DataType::bf16);
  return codec;
}

const Codec& f16_codec() noexcept {
  static const Codec& codec = *new HalfFloats(DataType::f16);
  return codec;
}

const Codec& int8_codec() noexcept {
  static const Codec& codec = *new Scaled;
  return codec;
}

const Codec& mx_f8e4m3_codec() noexcept {
  static const Codec& codec = *new Mx("mx_f8e4m3", DataType::f8e4m3);
  return codec;
}

const Codec& mx_f8e5m2_codec() noexcept {
  static const Codec& codec = *new Mx("mx_f8e5m2", DataType::f8e5m2);
  return codec;
}

std::span<const Codec* const> codecs() noexcept {
  static const Codec* const all[] = {&bf16_codec(), &f16_codec(), &int8_codec(), &mx_f8e4m3_codec(),
                                     &mx_f8e5m2_codec()};
  return all;
}

const Codec* find_codec(std::string_view name) noexcept {
  for (const Codec* const codec : codecs()) {
    if (codec->name() == name) return codec;
  }
  return nullptr;
}

}  // namespace collectives
