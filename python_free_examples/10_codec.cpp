// A user-defined codec. A codec converts f32 values to fewer bytes for messages. Here 32 values share an exponent.
// collectives_run -n 4 10_codec
#include <algorithm>
#include <cmath>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <limits>
#include <vector>

// A block is one byte e, then a signed byte q for each value. The value is q * 2^(e - 134). The largest magnitude of q
// in a block is from 64 to 127. If a decoded block is encoded again, it therefore gets the same exponent. Codecs
// must have this property: encode(decode(wire)) == wire.
class SharedExponent final : public collectives::Codec {
 public:
  std::string_view name() const noexcept override { return "shared_exponent"; }
  std::size_t block() const noexcept override { return 32; }
  std::size_t encoded_bytes(std::size_t count) const noexcept override { return count + (count + 31) / 32; }

  void encode(std::span<const float> values, std::byte* wire) const noexcept override {
    while (!values.empty()) {
      const auto block = values.first(std::min(values.size(), this->block()));
      float greatest = 0;
      bool finite = true;
      for (const float value : block) {
        greatest = std::max(greatest, std::abs(value));
        finite = finite && std::isfinite(value);
      }
      // The exponent byte is 0 if all magnitudes are below 2^-100, and 255 if there is a NaN or an infinity. Other
      // blocks have 1 to 254.
      const int exponent = !finite ? 255 : greatest < 0x1p-100f ? 0 : std::min(std::ilogb(greatest) + 128, 254);
      *wire++ = static_cast<std::byte>(exponent);
      for (const float value : block) {
        const bool zero = exponent == 0 || exponent == 255;
        const float q = zero ? 0 : std::clamp(std::nearbyint(std::ldexp(value, 134 - exponent)), -127.f, 127.f);
        *wire++ = static_cast<std::byte>(static_cast<signed char>(q));
      }
      values = values.subspan(block.size());
    }
  }

  void decode(const std::byte* wire, std::span<float> values) const noexcept override {
    while (!values.empty()) {
      const auto block = values.first(std::min(values.size(), this->block()));
      const int exponent = std::to_integer<int>(*wire++);
      for (float& value : block) {
        const auto q = static_cast<float>(static_cast<signed char>(*wire++));
        value = exponent == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(q, exponent - 134);
      }
      values = values.subspan(block.size());
    }
  }
};

int main() {
  collectives::Communicator comm = collectives::Communicator::from_environment();
  const SharedExponent codec;

  std::vector<float> gradient(1000);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = static_cast<float>(i % 100) + static_cast<float>(comm.rank());

  comm.all_reduce(gradient, gradient, collectives::ReduceOp::average, {.wire = codec});  // in place

  // The maximum error is twice half a step of 2: each rank rounds its values, and the rank that adds them rounds the
  // sum.
  const float ranks = static_cast<float>(comm.size() - 1) / 2;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (std::abs(gradient[i] - static_cast<float>(i % 100) - ranks) > 2) return 1;
  }
  if (comm.rank() == 0) {
    std::printf("%zu values averaged over %d ranks in %zu bytes each way\n", gradient.size(), comm.size(),
                codec.encoded_bytes(gradient.size()));
  }
}
