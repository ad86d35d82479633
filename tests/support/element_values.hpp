// Elements of every type, made of small whole numbers, and the results of every op on them. The numbers are so small
// that results are exact or rounded once, so they do not depend on the order of the ranks. Results are computed here
// from the numbers, not by the library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "collectives/types.hpp"

namespace collectives::testing {

/// Returns the built-in ops that `type` supports. The factor of pre_scaled_sum is 0.5.
inline std::vector<ReduceOp> ops_of_type(DataType type) {
  std::vector<ReduceOp> ops;
  for (const ReduceOp::Kind kind : kReduceKinds) {
    if (kind == ReduceOp::Kind::user || !supports(type, kind)) continue;
    ops.push_back(kind == ReduceOp::Kind::pre_scaled_sum ? ReduceOp::pre_scaled_sum(0.5) : ReduceOp::of(kind));
  }
  return ops;
}

template <class T>
void put_value(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// Calls visit(T()) with the C++ type of an integer or float.
template <class Visit>
void with_number_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::f32: return visit(float());
    case DataType::f64: return visit(double());
    case DataType::f16: return visit(float16());
    case DataType::bf16: return visit(bfloat16());
    case DataType::f8e4m3: return visit(float8_e4m3());
    case DataType::f8e5m2: return visit(float8_e5m2());
    case DataType::i8: return visit(std::int8_t());
    case DataType::u8: return visit(std::uint8_t());
    case DataType::i16: return visit(std::int16_t());
    case DataType::u16: return visit(std::uint16_t());
    case DataType::i32: return visit(std::int32_t());
    case DataType::u32: return visit(std::uint32_t());
    case DataType::i64: return visit(std::int64_t());
    case DataType::u64: return visit(std::uint64_t());
    default: return;
  }
}

/// Returns the type in which T is summed: T itself for f32 and f64, f32 for smaller floats, and a wide integer.
template <class T>
auto accumulator_of() {
  if constexpr (std::is_integral_v<T>) {
    return std::int64_t();
  } else if constexpr (sizeof(T) < 4) {
    return float();
  } else {
    return T();
  }
}

/// Writes a complex number or pair with the parts `first` and `second`. Padding is 0.
inline void put_parts(std::byte* at, DataType type, double first, int second) {
  std::memset(at, 0, size_of(type));
  switch (type) {
    case DataType::complex64:
      put_value(at, static_cast<float>(first));
      return put_value(at + 4, static_cast<float>(second));
    case DataType::complex128: put_value(at, first); return put_value(at + 8, static_cast<double>(second));
    case DataType::f32_index: put_value(at, static_cast<float>(first)); break;
    case DataType::f64_index: put_value(at, first); break;
    case DataType::i64_index: put_value(at, static_cast<std::int64_t>(first)); break;
    case DataType::i32_index: put_value(at, static_cast<std::int32_t>(first)); break;
    default: put_value(at, static_cast<std::int16_t>(first)); break;
  }
  put_value(at + size_of(type) / 2, static_cast<std::int32_t>(second));
}

/// Numbers of which an element is made: those of pairs are few, so that ranks have equal ones.
inline int first_part(int number) { return number % 4; }
inline int second_part(int number) { return number / 4; }

/// Number of which an element of a float is made, which f8e5m2 holds exactly.
template <class T>
int number_of(int number) {
  return std::is_integral_v<T> ? number : number % 8;
}

/// Writes the contribution that is made of `number`, from 0 to 15. Factors of products are 1 and 2, or 2 + i and twice
/// that, no product of which has a part that is 0.
inline void put_element(std::byte* at, DataType type, ReduceOp::Kind kind, int number) {
  switch (class_of(type)) {
    case TypeClass::boolean: return put_value(at, static_cast<std::uint8_t>(number));
    case TypeClass::complex:
      if (kind == ReduceOp::Kind::product) return put_parts(at, type, 2 + 2 * (number % 2), 1 + number % 2);
      return put_parts(at, type, number, -2 * number);
    case TypeClass::value_index: return put_parts(at, type, first_part(number), second_part(number));
    case TypeClass::integer:
    case TypeClass::floating: break;
  }
  with_number_type(type, [&]<class T>(T) {
    const int value = kind == ReduceOp::Kind::product ? 1 + number % 2 : number_of<T>(number);
    put_value(at, static_cast<T>(static_cast<float>(value)));
  });
}

/// Returns the result of a bitwise or logical op on the numbers of all ranks.
inline int result_of_bits(ReduceOp::Kind kind, std::span<const int> numbers) {
  using Kind = ReduceOp::Kind;
  const bool logical = kind == Kind::logical_and || kind == Kind::logical_or || kind == Kind::logical_xor;
  const auto term = [&](int number) { return logical ? (number != 0 ? 1 : 0) : number; };
  int result = term(numbers[0]);
  for (const int number : numbers.subspan(1)) {
    if (kind == Kind::bitwise_and || kind == Kind::logical_and)
      result &= term(number);
    else if (kind == Kind::bitwise_or || kind == Kind::logical_or)
      result |= term(number);
    else
      result ^= term(number);
  }
  return result;
}

/// Writes the result for an integer or float.
template <class T>
void put_number_result(std::byte* at, ReduceOp::Kind kind, std::span<const int> numbers) {
  using Kind = ReduceOp::Kind;
  if (kind > Kind::user) return put_value(at, static_cast<T>(static_cast<float>(result_of_bits(kind, numbers))));
  int sum = 0, product = 1, most = 0, least = 15;
  for (const int number : numbers) {
    sum += number_of<T>(number);
    product *= 1 + number % 2;
    most = std::max(most, number_of<T>(number));
    least = std::min(least, number_of<T>(number));
  }
  if constexpr (std::is_integral_v<T>) {
    const int ranks = static_cast<int>(numbers.size());
    return put_value(at, static_cast<T>(kind == Kind::product   ? product
                                        : kind == Kind::average ? sum / ranks
                                        : kind == Kind::min     ? least
                                        : kind == Kind::max     ? most
                                                                : sum));
  } else {
    using Wide = decltype(accumulator_of<T>());
    Wide result = static_cast<Wide>(sum);
    if (kind == Kind::product) result = static_cast<Wide>(product);
    if (kind == Kind::average) result /= static_cast<Wide>(numbers.size());
    if (kind == Kind::pre_scaled_sum) result *= Wide(0.5);
    if (kind == Kind::min) result = static_cast<Wide>(least);
    if (kind == Kind::max) result = static_cast<Wide>(most);
    put_value(at, static_cast<T>(result));
  }
}

template <class Real>
void put_complex_result(std::byte* at, ReduceOp::Kind kind, std::span<const int> numbers) {
  std::int64_t sum = 0, real = 1, imaginary = 0;
  for (const int number : numbers) {
    sum += number;
    const std::int64_t times = 1 + number % 2, before = real;
    real = times * (2 * real - imaginary);
    imaginary = times * (before + 2 * imaginary);
  }
  Real parts[2] = {static_cast<Real>(sum), static_cast<Real>(-2 * sum)};
  if (kind == ReduceOp::Kind::product) parts[0] = static_cast<Real>(real), parts[1] = static_cast<Real>(imaginary);
  for (Real& part : parts) {
    if (kind == ReduceOp::Kind::average) part /= static_cast<Real>(numbers.size());
    if (kind == ReduceOp::Kind::pre_scaled_sum) part *= Real(0.5);
  }
  put_value(at, parts[0]);
  put_value(at + sizeof(Real), parts[1]);
}

inline void put_pair_result(std::byte* at, DataType type, ReduceOp::Kind kind, std::span<const int> numbers) {
  const bool least = kind == ReduceOp::Kind::min_loc;
  int best = numbers[0];
  for (const int number : numbers) {
    const int a = first_part(number), b = first_part(best);
    if (a != b ? (a < b) == least : second_part(number) < second_part(best)) best = number;
  }
  put_parts(at, type, first_part(best), second_part(best));
}

/// Writes the result of an op. `numbers` are those of all ranks, in rank order.
inline void put_result(std::byte* at, DataType type, ReduceOp::Kind kind, std::span<const int> numbers) {
  using Kind = ReduceOp::Kind;
  switch (class_of(type)) {
    case TypeClass::boolean: {
      if (kind == Kind::sum || kind == Kind::max || kind == Kind::bitwise_or) kind = Kind::logical_or;
      if (kind == Kind::product || kind == Kind::min || kind == Kind::bitwise_and) kind = Kind::logical_and;
      if (kind == Kind::bitwise_xor) kind = Kind::logical_xor;
      return put_value(at, static_cast<std::uint8_t>(result_of_bits(kind, numbers)));
    }
    case TypeClass::complex:
      if (type == DataType::complex64) return put_complex_result<float>(at, kind, numbers);
      return put_complex_result<double>(at, kind, numbers);
    case TypeClass::value_index: return put_pair_result(at, type, kind, numbers);
    case TypeClass::integer:
    case TypeClass::floating: break;
  }
  with_number_type(type, [&]<class T>(T) { put_number_result<T>(at, kind, numbers); });
}

}  // namespace collectives::testing
