// Defines a codec, which converts f32 values to fewer bytes for messages between ranks. In this codec, a block of 32
// values shares one exponent. collectives_run -n 4 10_codec
#include <algorithm>
#include <cmath>
#include <collectives/collectives.hpp>
#include <cstdio>
#include <limits>
#include <vector>

// An encoded block is a byte e, the exponent, and a signed byte q for each value. The decoded value is q * 2^(e - 134).
// The exponent is chosen so that the largest magnitude of q in a block is from 64 to 127. A decoded block that is
// encoded again gets this exponent. Every codec must have this property: encode(decode(wire)) == wire.
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
      // The exponent byte is 0 if all magnitudes in the block are below 2^-100, and 255 if the block has a NaN or an
      // infinity. Otherwise it is from 1 to 254.
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

  // Neighbouring values of the codec differ by a step of 2 here, so each rounding has an error of at most 1. Each rank
  // rounds its values once, and the rank that adds them rounds the sum once. The maximum error is therefore 2.
  const float ranks = static_cast<float>(comm.size() - 1) / 2;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (std::abs(gradient[i] - static_cast<float>(i % 100) - ranks) > 2) return 1;
  }
  if (comm.rank() == 0) {
    std::printf("%zu values averaged over %d ranks in %zu bytes each way\n", gradient.size(), comm.size(),
                codec.encoded_bytes(gradient.size()));
  }
}
