// Tests of the GPU kernels: each must give the same bits as the equivalent function on the CPU. Skipped without a GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "compression/select.hpp"
#include "compression/sparse.hpp"
#include "cuda/kernels.hpp"
#include "reduction/reduction.hpp"

namespace collectives {
namespace {

/// Length of long vectors, in elements, so that every thread of a kernel handles several elements. Slow runs, with a
/// sanitizer or on the fake of CUDA, set CUDA_KERNELS_LONG to a lower number.
const std::size_t kLong = [] {
  const char* const told = std::getenv("CUDA_KERNELS_LONG");
  return told == nullptr ? std::size_t{1'000'003} : static_cast<std::size_t>(std::strtoull(told, nullptr, 10));
}();

void expect_ok(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

/// GPU memory with a copy of the vector `host`, which is in CPU memory. The copy begins `shift` elements after an
/// aligned address.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host, std::size_t shift = 0) : count_(host.size()), shift_(shift) {
    expect_ok(cudaMalloc(&memory_, (count_ + shift_ + 1) * sizeof(T)));
    expect_ok(cudaMemcpy(data(), host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  explicit OnDevice(std::size_t count, std::size_t shift = 0) : OnDevice(std::vector<T>(count), shift) {}
  ~OnDevice() { cudaFree(memory_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  T* data() const { return static_cast<T*>(memory_) + shift_; }
  std::byte* bytes() const { return reinterpret_cast<std::byte*>(data()); }
  std::vector<T> host() const {
    std::vector<T> copy(count_);
    expect_ok(cudaDeviceSynchronize());
    expect_ok(cudaMemcpy(copy.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  void* memory_ = nullptr;
  std::size_t count_, shift_;
};

class CudaKernels : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "skipped: no CUDA device";
  }
};

std::vector<float> normal(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(n);
  for (float& value : values) value = draw(random);
  return values;
}

/// Returns random bytes that are not NaN in any element type, because the sum of two NaNs has an unspecified payload.
std::vector<std::byte> some_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xbf);
  return bytes;
}

TEST_F(CudaKernels, FoldsAreThoseOfTheProcessor) {
  for (const DataType type : kDataTypes) {
    for (const ReduceOp::Kind kind : kReduceKinds) {
      if (!supports(type, kind) || kind == ReduceOp::Kind::user) continue;
      const ReduceOp op = kind == ReduceOp::Kind::pre_scaled_sum ? ReduceOp::pre_scaled_sum(0.3) : ReduceOp::of(kind);
      for (const std::size_t ranks : {1U, 2U, 3U, 8U, 65U}) {
        for (const std::size_t count : {std::size_t{1}, std::size_t{15}, std::size_t{4099}, kLong}) {
          if (ranks == 65 && count > 5000) continue;
          for (const std::size_t shift : {0U, 1U}) {
            SCOPED_TRACE(std::string(to_string(type)) + " " + std::string(to_string(op.kind())) + " of " +
                         std::to_string(ranks) + " x " + std::to_string(count) + ", shifted by " +
                         std::to_string(shift));
            const std::size_t bytes = count * size_of(type);
            std::vector<std::vector<std::byte>> inputs;
            std::vector<std::unique_ptr<OnDevice<std::byte>>> copies;
            std::vector<Source> here, there;
            for (std::size_t rank = 0; rank < ranks; ++rank) {
              inputs.push_back(some_bytes(bytes, static_cast<unsigned>(rank + 1)));
              copies.push_back(std::make_unique<OnDevice<std::byte>>(inputs.back(), rank * shift * size_of(type)));
              here.push_back({inputs.back().data(), rank != 1});
              there.push_back({copies.back()->data(), rank != 1});
            }
            std::vector<std::byte> expected(bytes);
            const OnDevice<std::byte> out(bytes), second(bytes, shift * size_of(type));
            std::byte* const outs[] = {out.data(), second.data()};
            fold(op, type, here, expected.data(), count, static_cast<int>(ranks));
            cuda::fold(op, type, there, outs, count, static_cast<int>(ranks), nullptr);
            EXPECT_EQ(out.host(), expected);
            EXPECT_EQ(second.host(), expected);
          }
        }
      }
    }
  }
}

template <class Half>
void expect_casts(DataType type) {
  std::vector<float> values = normal(kLong, 1);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {  // ties, denormals, infinities, NaN, and their neighbours
    for (const std::uint32_t low : {0x0000U, 0x7fffU, 0x8000U, 0x8001U})
      values.push_back(std::bit_cast<float>(bits << 16 | low));
  }
  std::vector<Half> expected(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) expected[i] = static_cast<Half>(values[i]);
  for (const std::size_t shift : {0U, 1U}) {
    const OnDevice<float> from(values, shift), back(values.size());
    const OnDevice<Half> to(values.size(), shift);
    cuda::cast({from.data(), values.size(), DataType::f32}, {to.data(), values.size(), type}, nullptr);
    const auto got = to.host();
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(Half)), 0);
    cuda::cast({to.data(), values.size(), type}, {back.data(), values.size(), DataType::f32}, nullptr);
    const auto wide = back.host();
    for (std::size_t i = 0; i < wide.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(static_cast<float>(expected[i])));
  }
}
TEST_F(CudaKernels, CastsAreThoseOfTheProcessor) {
  expect_casts<bfloat16>(DataType::bf16);
  expect_casts<float16>(DataType::f16);
}

TEST_F(CudaKernels, CastReduceScaleIsTheThreeOneAfterTheOther) {
  constexpr std::size_t kCount = 100'003;
  for (const std::size_t ranks : {1U, 2U, 7U}) {
    for (const std::size_t shift : {0U, 3U}) {
      std::vector<std::vector<bfloat16>> inputs;
      std::vector<std::unique_ptr<OnDevice<bfloat16>>> copies;
      std::vector<const std::byte*> sources;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::vector<bfloat16> input;
        for (const float value : normal(kCount, static_cast<unsigned>(rank))) input.emplace_back(value);
        copies.push_back(std::make_unique<OnDevice<bfloat16>>(input, shift));
        sources.push_back(copies.back()->bytes());
        inputs.push_back(std::move(input));
      }
      std::vector<bfloat16> expected(kCount);
      std::vector<float> decoded(kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        float sum = static_cast<float>(inputs[0][i]);
        for (std::size_t rank = 1; rank < ranks; ++rank) sum += static_cast<float>(inputs[rank][i]);
        expected[i] = static_cast<bfloat16>(sum / static_cast<float>(ranks));
        decoded[i] = static_cast<float>(expected[i]);
      }
      const OnDevice<bfloat16> wire(kCount);
      const OnDevice<float> seen(kCount);
      cuda::cast_reduce_scale(DataType::bf16, sources, kCount, static_cast<float>(ranks),
                              {wire.data(), kCount, DataType::bf16}, seen.data(), nullptr);
      const auto got = wire.host();
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), kCount * sizeof(bfloat16)), 0);
      EXPECT_EQ(seen.host(), decoded);
    }
  }
}

void expect_selection(const std::vector<float>& gradient, std::size_t k, std::vector<float> accumulated,
                      std::vector<float> velocity, std::size_t shift) {
  const std::size_t n = gradient.size(), chosen = std::min(n, k);
  const OnDevice<float> on_gradient(gradient, shift), on_accumulated(accumulated, shift), on_velocity(velocity, shift),
      values(chosen);
  const OnDevice<std::uint32_t> indices(chosen);
  const OnDevice<std::byte> scratch(cuda::select_scratch_bytes(n, k));
  cuda::select({.gradient = on_gradient.data(),
                .accumulated = accumulated.empty() ? nullptr : on_accumulated.data(),
                .velocity = velocity.empty() ? nullptr : on_velocity.data(),
                .n = n,
                .momentum = 0.9F},
               k, indices.data(), values.data(), scratch.data(), nullptr);
  std::vector<std::uint32_t> expected(chosen);
  std::vector<float> expected_values(chosen);
  Selector().select({.gradient = gradient, .accumulated = accumulated, .velocity = velocity, .momentum = 0.9F}, k,
                    expected.data(), expected_values.data());
  EXPECT_EQ(indices.host(), expected);
  const auto got = values.host();
  if (chosen > 0) {
    EXPECT_EQ(std::memcmp(got.data(), expected_values.data(), chosen * sizeof(float)), 0);
  }
  EXPECT_EQ(on_accumulated.host(), accumulated);
  EXPECT_EQ(on_velocity.host(), velocity);
}

TEST_F(CudaKernels, SelectionIsThatOfTheProcessor) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{5}, std::size_t{1000}, kLong, 3 * kLong}) {
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, n / 1000, n / 100, n / 2, n, n + 1}) {
      for (const std::size_t shift : {0U, 1U}) {
        SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(n));
        expect_selection(normal(n, 1), k, {}, {}, shift);
        expect_selection(normal(n, 1), k, normal(n, 2), {}, shift);
        expect_selection(normal(n, 1), k, normal(n, 2), normal(n, 3), shift);
        expect_selection(std::vector<float>(n, -2.0F), k, std::vector<float>(n, 1.0F), {}, shift);
      }
    }
  }
}

TEST_F(CudaKernels, SparseSumsAreThoseOfTheProcessor) {
  constexpr std::size_t kN = 500'000;
  for (const float divisor : {1.0F, 3.0F}) {
    std::vector<std::vector<std::uint32_t>> indices;
    std::vector<std::vector<float>> values;
    for (unsigned t = 0; t < 5; ++t) {
      std::mt19937 random(t);
      std::vector<std::uint32_t> some;
      for (std::uint32_t i = 0; i < kN; ++i)
        if (random() % 7 == 0) some.push_back(i);
      values.push_back(normal(some.size(), t));
      values.back()[0] = -0.0F;
      indices.push_back(std::move(some));
    }
    std::vector<Entries> here;
    std::vector<cuda::Term> there;
    std::vector<std::unique_ptr<OnDevice<std::uint32_t>>> index_copies;
    std::vector<std::unique_ptr<OnDevice<float>>> value_copies;
    for (std::size_t t = 0; t < indices.size(); ++t) {
      here.push_back({indices[t].data(), values[t].data(), indices[t].size()});
      index_copies.push_back(std::make_unique<OnDevice<std::uint32_t>>(indices[t]));
      value_copies.push_back(std::make_unique<OnDevice<float>>(values[t]));
      there.push_back({index_copies.back()->data(), value_copies.back()->data(), indices[t].size()});
    }
    const OnDevice<std::byte> scratch(cuda::sparse_scratch_bytes(kN));
    // The second call reuses the scratch memory of the first, which must be as before.
    for (int call = 0; call < 2; ++call) {
      std::vector<float> expected(kN);
      const std::size_t union_size = SparseSum().add(here.data(), here.size(), divisor, expected.data(), kN);
      const OnDevice<float> sum(kN);
      const OnDevice<std::uint32_t> counted(1);
      cuda::sparse_add(there, divisor, sum.data(), scratch.data(), call == 0 ? counted.data() : nullptr, nullptr);
      EXPECT_EQ(counted.host()[0], call == 0 ? union_size : 0);
      const auto got = sum.host();
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), kN * sizeof(float)), 0);
    }
  }
}

}  // namespace
}  // namespace collectives
