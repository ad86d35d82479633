#include <cstring>
#include "collectives/codec.hpp"
namespace collectives {
Codec::~Codec() = default;
namespace {
template <class T>
struct Cast final : Codec {
  std::string_view n;
  explicit Cast(std::string_view x) : n(x) {}
  std::string_view name() const noexcept override { return n; }
  std::size_t encoded_bytes(std::size_t c) const noexcept override { return 2 * c; }
  void encode(std::span<const float> v, std::byte* w) const noexcept override {
    for (std::size_t i = 0; i < v.size(); ++i) { T t(v[i]); std::memcpy(w + 2 * i, &t, 2); }
  }
  void decode(const std::byte* w, std::span<float> v) const noexcept override {
    for (std::size_t i = 0; i < v.size(); ++i) { T t; std::memcpy(&t, w + 2 * i, 2); v[i] = static_cast<float>(t); }
  }
};
}
const Codec& bf16_codec() noexcept { static const Cast<bfloat16> c("bf16"); return c; }
const Codec& f16_codec() noexcept { static const Cast<float16> c("f16"); return c; }
const Codec& int8_codec() noexcept { return bf16_codec(); }
const Codec* find_codec(std::string_view) noexcept { return nullptr; }
}
