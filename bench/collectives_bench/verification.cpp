// Implementation of the verification of results in collectives_bench. A contribution is the input of one rank. This
// file computes the contributions of all ranks and their reduction, and compares the results of a collective with them.
#include "collectives_bench/verification.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace collectives::bench {

namespace {

__extension__ using Wide = __int128;

/// Calls `visit` with the std::type_identity of the C++ type that belongs to a DataType. Throws std::invalid_argument
/// for complex numbers and pairs, because the benchmark cannot verify them.
template <class Visitor>
void with_type(DataType type, Visitor&& visit) {
  switch (type) {
    case DataType::f32: return visit(std::type_identity<float>());
    case DataType::f64: return visit(std::type_identity<double>());
    case DataType::f16: return visit(std::type_identity<float16>());
    case DataType::bf16: return visit(std::type_identity<bfloat16>());
    case DataType::i8: return visit(std::type_identity<std::int8_t>());
    case DataType::u8: return visit(std::type_identity<std::uint8_t>());
    case DataType::i32: return visit(std::type_identity<std::int32_t>());
    case DataType::u32: return visit(std::type_identity<std::uint32_t>());
    case DataType::i64: return visit(std::type_identity<std::int64_t>());
    case DataType::u64: return visit(std::type_identity<std::uint64_t>());
    case DataType::boolean: return visit(std::type_identity<bool>());
    case DataType::i16: return visit(std::type_identity<std::int16_t>());
    case DataType::u16: return visit(std::type_identity<std::uint16_t>());
    case DataType::f8e4m3: return visit(std::type_identity<float8_e4m3>());
    case DataType::f8e5m2: return visit(std::type_identity<float8_e5m2>());
    default: throw std::invalid_argument("no results are known of type " + std::string(to_string(type)));
  }
}

/// Arithmetic type through which elements of type T are converted to double and back.
template <class T>
using Scalar = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
double widen(T value) {
  return static_cast<double>(static_cast<Scalar<T>>(value));
}
template <class T>
T narrow(double value) {
  return static_cast<T>(static_cast<Scalar<T>>(value));
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

/// Returns a hash of `x`, computed by the last step of the random number generator splitmix64.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/// Makes an element of type T from 64 random bits.
template <class T>
T element(std::uint64_t bits, const std::optional<ReduceOp>& op, Data data, int ranks) {
  if constexpr (std::is_same_v<T, bool>) return bits >> 62 != 0;
  const bool product = op && op->kind() == ReduceOp::Kind::product;
  if (data == Data::exact) {
    const int small = static_cast<int>(bits >> 61);  // a value from 0 to 7
    if (product) {
      const int one_or_two = 1 + (small & 1), sign = std::is_unsigned_v<T> || (small & 2) == 0 ? 1 : -1;
      return narrow<T>(one_or_two * sign);
    }
    return narrow<T>(std::is_unsigned_v<T> ? small : small - 3);
  }
  constexpr bool integral = std::is_integral_v<T>;
  if (integral || !op || op->kind() == ReduceOp::Kind::user) return load<T>(reinterpret_cast<const std::byte*>(&bits));
  const double uniform = static_cast<double>(bits >> 11) * 0x1p-52 - 1;  // a value in [-1, 1)
  if (!product) return narrow<T>(uniform);
  const double sign = (bits & 1) != 0 ? 1 : -1;
  return narrow<T>(sign * (1 + uniform / (ranks + 1)));
}

/// Returns the min or max of two values. The contributions have no NaN and no negative zero, so simple comparisons
/// suffice.
template <class T>
T extreme(ReduceOp::Kind kind, T a, T b) {
  return (kind == ReduceOp::Kind::min) == (widen(b) < widen(a)) ? b : a;
}

/// Returns the result of a bitwise op over all of `x`. The result is also that of the logical op if `x` holds only
/// zeros and ones.
template <class T>
T fold_bits(ReduceOp::Kind kind, std::span<const T> x) {
  using Kind = ReduceOp::Kind;
  const auto fold = [&](auto op) { return std::accumulate(x.begin() + 1, x.end(), x[0], op); };
  if (kind == Kind::bitwise_and || kind == Kind::logical_and)
    return fold([](T a, T b) { return static_cast<T>(a & b); });
  if (kind == Kind::bitwise_or || kind == Kind::logical_or) return fold([](T a, T b) { return static_cast<T>(a | b); });
  return fold([](T a, T b) { return static_cast<T>(a ^ b); });
}

/// Returns the result of an op over booleans.
bool fold_booleans(ReduceOp::Kind kind, std::span<const bool> x) {
  using Kind = ReduceOp::Kind;
  if (kind == Kind::sum || kind == Kind::max) kind = Kind::logical_or;
  if (kind == Kind::product || kind == Kind::min) kind = Kind::logical_and;
  return fold_bits(kind, x);
}

template <class T>
T fold_integers(ReduceOp::Kind kind, std::span<const T> x) {
  if (kind == ReduceOp::Kind::logical_and || kind == ReduceOp::Kind::logical_or ||
      kind == ReduceOp::Kind::logical_xor) {
    std::vector<T> truth;
    for (const T value : x) truth.push_back(value != 0 ? 1 : 0);
    return fold_bits<T>(kind, truth);
  }
  if (kind > ReduceOp::Kind::user) return fold_bits(kind, x);
  using Bits = std::make_unsigned_t<T>;
  Wide sum = 0;
  Bits product = 1;
  T lowest = x[0], highest = x[0];
  for (const T value : x) {
    sum += value;
    product = static_cast<Bits>(static_cast<std::uint64_t>(product) * static_cast<Bits>(value));
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  switch (kind) {
    case ReduceOp::Kind::average: return static_cast<T>(sum / static_cast<Wide>(x.size()));
    case ReduceOp::Kind::product: return static_cast<T>(product);
    case ReduceOp::Kind::min: return lowest;
    case ReduceOp::Kind::max: return highest;
    default: return static_cast<T>(static_cast<Bits>(sum));
  }
}

/// Unit roundoff of T: half the distance from 1 to the next value, which bounds the relative error of rounding.
template <class T>
constexpr double kRoundoff = std::is_same_v<T, double>        ? 0x1p-53
                             : std::is_same_v<T, float>       ? 0x1p-24
                             : std::is_same_v<T, float16>     ? 0x1p-11
                             : std::is_same_v<T, float8_e4m3> ? 0x1p-4
                             : std::is_same_v<T, float8_e5m2> ? 0x1p-3
                                                              : 0x1p-8;
/// Half the distance between two denormals of T, which bounds the rounding error of the smallest results.
template <class T>
constexpr double kSmallest = std::is_same_v<T, float16>       ? 0x1p-25
                             : std::is_same_v<T, float8_e4m3> ? 0x1p-10
                             : std::is_same_v<T, float8_e5m2> ? 0x1p-17
                                                              : 0;

}  // namespace

Oracle::Oracle(DataType type, const std::optional<ReduceOp>& op, int ranks, Data data, std::uint64_t seed,
               std::optional<int> reduced)
    : type_(type), element_(size_of(type)), contributions_(static_cast<std::size_t>(ranks)) {
  with_type(type, [&]<class T>(std::type_identity<T>) {
    for (std::size_t rank = 0; rank < contributions_.size(); ++rank) {
      contributions_[rank].resize(kPeriod * sizeof(T));
      const std::uint64_t stream = mix(mix(seed + 1) + rank);
      for (std::size_t i = 0; i < kPeriod; ++i) {
        store(&contributions_[rank][i * sizeof(T)], element<T>(mix(stream + i * 0x9e3779b97f4a7c15u), op, data, ranks));
      }
    }
    if (op && reduced.value_or(ranks) > 0) reduce<T>(*op, static_cast<std::size_t>(reduced.value_or(ranks)));
  });
  if (data == Data::exact) tolerated_.clear();
}

template <class T>
void Oracle::reduce(const ReduceOp& op, std::size_t reduced) {
  const ReduceOp::Kind kind = op.kind();
  const auto ranks = static_cast<double>(reduced);
  reduction_ = contributions_[0];
  if (kind == ReduceOp::Kind::user) {
    for (std::size_t rank = 1; rank < reduced; ++rank) {
      op.user_op()->combine(contributions_[rank].data(), reduction_.data(), kPeriod, type_);
    }
    return;
  }
  const auto x_of_ranks = std::make_unique<T[]>(reduced);
  const std::span<T> x(x_of_ranks.get(), reduced);
  for (std::size_t i = 0; i < kPeriod; ++i) {
    for (std::size_t rank = 0; rank < x.size(); ++rank) x[rank] = load<T>(&contributions_[rank][i * sizeof(T)]);
    std::byte* const result = &reduction_[i * sizeof(T)];
    if constexpr (std::is_same_v<T, bool>) {
      store(result, fold_booleans(kind, x));
    } else if constexpr (std::is_integral_v<T>) {
      store(result, fold_integers<T>(kind, x));
    } else if (kind == ReduceOp::Kind::min || kind == ReduceOp::Kind::max) {
      T best = x[0];
      for (const T value : x) best = extreme(kind, best, value);
      store(result, best);
    } else {
      const double scale = kind == ReduceOp::Kind::average ? 1 / ranks : op.factor();
      double value = 0, magnitudes = 0, product = 1;
      for (const T term : x) {
        value += widen(term);
        magnitudes += std::abs(widen(term));
        product *= widen(term);
      }
      value = kind == ReduceOp::Kind::average ? value / ranks : value * op.factor();
      magnitudes *= std::abs(scale);
      if (kind == ReduceOp::Kind::product) {
        value = product;
        magnitudes = std::abs(product);
      }
      const double accumulation = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
      store(result, narrow<T>(value));
      tolerated_.push_back(
          {value, 2 * ranks * accumulation * magnitudes + kRoundoff<T> * std::abs(value) + kSmallest<T>});
    }
  }
}

namespace {

/// Cuts [0, bytes) where the expected data repeat. Calls `visit(offset in bytes, offset in the period, bytes)` for each
/// piece.
template <class Visitor>
void for_each_run(std::size_t first, std::size_t element, std::size_t bytes, Visitor&& visit) {
  const std::size_t period = Oracle::kPeriod * element;
  std::size_t within = first % Oracle::kPeriod * element;
  for (std::size_t done = 0; done < bytes; within = 0) {
    const std::size_t run = std::min(bytes - done, period - within);
    visit(done, within, run);
    done += run;
  }
}

/// Returns the number of elements of `got` that differ in any bit from the expected data, which repeat `period`.
std::size_t wrong_bits(std::span<const std::byte> period, std::size_t element, std::size_t first,
                       std::span<const std::byte> got) {
  std::size_t wrong = 0;
  for_each_run(first, element, got.size(), [&](std::size_t done, std::size_t within, std::size_t bytes) {
    if (std::memcmp(&got[done], &period[within], bytes) == 0) return;
    for (std::size_t i = 0; i < bytes; i += element) {
      if (std::memcmp(&got[done + i], &period[within + i], element) != 0) ++wrong;
    }
  });
  return wrong;
}

}  // namespace

void Oracle::fill(Rank rank, std::size_t first, std::span<std::byte> out) const {
  const auto& period = contributions_[static_cast<std::size_t>(rank)];
  for_each_run(first, element_, out.size(), [&](std::size_t done, std::size_t within, std::size_t bytes) {
    std::memcpy(&out[done], &period[within], bytes);
  });
}

std::size_t Oracle::wrong_copies(Rank rank, std::size_t first, std::span<const std::byte> got) const {
  return wrong_bits(contributions_[static_cast<std::size_t>(rank)], element_, first, got);
}

std::size_t Oracle::wrong_reductions(std::size_t first, std::span<const std::byte> got, double more) const {
  if (tolerated_.empty()) return wrong_bits(reduction_, element_, first, got);
  std::size_t wrong = 0;
  with_type(type_, [&]<class T>(std::type_identity<T>) {
    for_each_run(first, sizeof(T), got.size(), [&](std::size_t done, std::size_t within, std::size_t bytes) {
      const Tolerated* expected = &tolerated_[within / sizeof(T)];
      for (std::size_t i = 0; i < bytes / sizeof(T); ++i) {
        const double value = widen(load<T>(&got[done + i * sizeof(T)]));
        if (!(std::abs(value - expected[i].value) <= expected[i].tolerance + more)) ++wrong;  // true for NaN
      }
    });
  });
  return wrong;
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) noexcept {
  std::uint64_t hash = bytes.size();
  std::size_t done = 0;
  for (; done + sizeof(std::uint64_t) <= bytes.size(); done += sizeof(std::uint64_t)) {
    hash = (hash ^ load<std::uint64_t>(&bytes[done])) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  for (; done < bytes.size(); ++done) hash = (hash ^ static_cast<std::uint64_t>(bytes[done])) * 0x9e3779b97f4a7c15u;
  return mix(hash);
}

}  // namespace collectives::bench
