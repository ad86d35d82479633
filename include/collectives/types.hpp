// Basic types: ranks, element types, reductions and typed views of memory.
//
// A call takes its memory as a Buffer: a pointer, a number of elements and an element type. Memory that a call only
// reads is a ConstBuffer. A contiguous range of elements converts to either. A range of const elements converts only to
// a ConstBuffer. `comm.all_reduce(gradient, sum, ReduceOp::sum)` therefore takes vectors, arrays and spans.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/export.hpp"
#include "collectives/float8.hpp"

namespace collectives {

/// Rank of a communicator, from 0 to size - 1.
using Rank = int;

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  barrier,
  all_to_all,
  gather,
  scatter,
  scan,
  exclusive_scan
};

/// Type of elements. A boolean has one byte, and a byte other than 0 is true. A complex number consists of two floats,
/// the real part first. The last five types are pairs of a value and an index (ValueIndex).
enum class DataType : std::uint8_t {
  f32,
  f64,
  f16,
  bf16,
  i8,
  u8,
  i32,
  u32,
  i64,
  u64,
  boolean,
  i16,
  u16,
  f8e4m3,
  f8e5m2,
  complex64,
  complex128,
  f32_index,
  f64_index,
  i64_index,
  i32_index,
  i16_index
};

/// Class of an element type. It decides which ops the type has.
enum class TypeClass : std::uint8_t { floating, integer, boolean, complex, value_index };

/// Location of the buffers of a call: memory of the CPU (host) or of a GPU (device).
enum class Memory : std::uint8_t { host, device };

inline constexpr Collective kCollectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,    Collective::broadcast,
    Collective::reduce,     Collective::barrier,        Collective::all_to_all,    Collective::gather,
    Collective::scatter,    Collective::scan,           Collective::exclusive_scan};
inline constexpr DataType kDataTypes[] = {
    DataType::f32,       DataType::f64,        DataType::f16,       DataType::bf16,      DataType::i8,
    DataType::u8,        DataType::i32,        DataType::u32,       DataType::i64,       DataType::u64,
    DataType::boolean,   DataType::i16,        DataType::u16,       DataType::f8e4m3,    DataType::f8e5m2,
    DataType::complex64, DataType::complex128, DataType::f32_index, DataType::f64_index, DataType::i64_index,
    DataType::i32_index, DataType::i16_index};

namespace detail {
/// Properties of an element type.
struct TypeFacts {
  std::string_view name;
  std::uint8_t bytes;
  TypeClass type_class;
};
/// Properties of all element types, in the order of DataType.
inline constexpr TypeFacts kTypeFacts[] = {{"f32", 4, TypeClass::floating},
                                           {"f64", 8, TypeClass::floating},
                                           {"f16", 2, TypeClass::floating},
                                           {"bf16", 2, TypeClass::floating},
                                           {"i8", 1, TypeClass::integer},
                                           {"u8", 1, TypeClass::integer},
                                           {"i32", 4, TypeClass::integer},
                                           {"u32", 4, TypeClass::integer},
                                           {"i64", 8, TypeClass::integer},
                                           {"u64", 8, TypeClass::integer},
                                           {"boolean", 1, TypeClass::boolean},
                                           {"i16", 2, TypeClass::integer},
                                           {"u16", 2, TypeClass::integer},
                                           {"f8e4m3", 1, TypeClass::floating},
                                           {"f8e5m2", 1, TypeClass::floating},
                                           {"complex64", 8, TypeClass::complex},
                                           {"complex128", 16, TypeClass::complex},
                                           {"f32_index", 8, TypeClass::value_index},
                                           {"f64_index", 16, TypeClass::value_index},
                                           {"i64_index", 16, TypeClass::value_index},
                                           {"i32_index", 8, TypeClass::value_index},
                                           {"i16_index", 8, TypeClass::value_index}};
static_assert(std::size(kTypeFacts) == std::size(kDataTypes));
}  // namespace detail

COLLECTIVES_EXPORT std::string_view to_string(Collective) noexcept;
COLLECTIVES_EXPORT std::string_view to_string(Memory) noexcept;
COLLECTIVES_EXPORT std::string_view to_string(DataType) noexcept;

/// Returns the bytes of one element, or 0 for a value outside the enumeration.
constexpr std::size_t size_of(DataType type) noexcept {
  const auto index = static_cast<std::size_t>(type);
  return index < std::size(detail::kTypeFacts) ? detail::kTypeFacts[index].bytes : 0;
}

/// Returns the class of a type. Requires a value of the enumeration.
constexpr TypeClass class_of(DataType type) noexcept {
  return detail::kTypeFacts[static_cast<std::size_t>(type)].type_class;
}
constexpr bool is_floating(DataType type) noexcept { return class_of(type) == TypeClass::floating; }

/// 16-bit float with the exponent of an f32. The class defines only conversions from and to f32. The conversion from
/// f32 rounds to nearest even by integer arithmetic. Therefore, every machine computes the same bits. NaN stays NaN and
/// becomes quiet. Denormals are kept.
struct bfloat16 {
  std::uint16_t bits = 0;

  constexpr bfloat16() = default;
  constexpr explicit bfloat16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    bits = static_cast<std::uint16_t>((nan ? (word | 0x00400000u) : rounded) >> 16);
  }
  constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE 16-bit float, stored and converted like bfloat16.
struct float16 {
  std::uint16_t bits = 0;

  constexpr float16() = default;
  constexpr explicit float16(float value) noexcept {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);  // NaN keeps the upper bits of its payload and becomes quiet
    } else if (magnitude >= 0x47800000u) {
      half = 0x7c00u;  // 2^16 and beyond, and infinity
    } else if (magnitude >= 0x38800000u) {
      half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;  // normal; may carry into infinity
    } else if (magnitude >= 0x33000000u) {
      const std::uint32_t shift = 126u - (magnitude >> 23);  // denormal: 14 to 24 bits of the significand fall away
      const std::uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
      const std::uint32_t rest = significand & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
      half = significand >> shift;
      if (rest > tie || (rest == tie && (half & 1u))) ++half;
    }
    bits = static_cast<std::uint16_t>(sign | half);
  }
  constexpr explicit operator float() const noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
    if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
    const float denormal = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(denormal));
  }
};

/// Element of min_loc and max_loc: a value, and the index that belongs to it. Its layout is that of MPI's pair types,
/// such as MPI_DOUBLE_INT. Values are float, double, and signed integers of 16, 32 or 64 bits.
template <class T>
struct ValueIndex {
  T value{};
  std::int32_t index = 0;
  constexpr bool operator==(const ValueIndex&) const = default;
};
static_assert(sizeof(ValueIndex<float>) == 8 && sizeof(ValueIndex<double>) == 16 &&
              sizeof(ValueIndex<std::int64_t>) == 16 && sizeof(ValueIndex<std::int32_t>) == 8 &&
              sizeof(ValueIndex<std::int16_t>) == 8);

namespace detail {
template <class T>
inline constexpr int kPairType = -1;
template <>
inline constexpr int kPairType<ValueIndex<float>> = static_cast<int>(DataType::f32_index);
template <>
inline constexpr int kPairType<ValueIndex<double>> = static_cast<int>(DataType::f64_index);
template <std::signed_integral T>
inline constexpr int kPairType<ValueIndex<T>> = sizeof(T) == 8   ? static_cast<int>(DataType::i64_index)
                                                : sizeof(T) == 4 ? static_cast<int>(DataType::i32_index)
                                                : sizeof(T) == 2 ? static_cast<int>(DataType::i16_index)
                                                                 : -1;

template <class T>
consteval int data_type_of() {
  if constexpr (std::same_as<T, float>) return static_cast<int>(DataType::f32);
  if constexpr (std::same_as<T, double>) return static_cast<int>(DataType::f64);
  if constexpr (std::same_as<T, float16>) return static_cast<int>(DataType::f16);
  if constexpr (std::same_as<T, bfloat16>) return static_cast<int>(DataType::bf16);
  if constexpr (std::same_as<T, std::byte>) return static_cast<int>(DataType::u8);
  if constexpr (std::same_as<T, bool> && sizeof(bool) == 1) return static_cast<int>(DataType::boolean);
  if constexpr (std::same_as<T, float8_e4m3>) return static_cast<int>(DataType::f8e4m3);
  if constexpr (std::same_as<T, float8_e5m2>) return static_cast<int>(DataType::f8e5m2);
  if constexpr (std::same_as<T, std::complex<float>>) return static_cast<int>(DataType::complex64);
  if constexpr (std::same_as<T, std::complex<double>>) return static_cast<int>(DataType::complex128);
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return static_cast<int>(is_signed ? DataType::i8 : DataType::u8);
    if constexpr (sizeof(T) == 2) return static_cast<int>(is_signed ? DataType::i16 : DataType::u16);
    if constexpr (sizeof(T) == 4) return static_cast<int>(is_signed ? DataType::i32 : DataType::u32);
    if constexpr (sizeof(T) == 8) return static_cast<int>(is_signed ? DataType::i64 : DataType::u64);
  }
  return kPairType<T>;
}
}  // namespace detail

/// Element type of collectives: float, double, float16, bfloat16, float8_e4m3, float8_e5m2, bool, integers of 8 to 64
/// bits, std::byte, std::complex of float or double, and ValueIndex.
template <class T>
concept Element = detail::data_type_of<std::remove_cv_t<T>>()
>= 0;

template <Element T>
inline constexpr DataType data_type_v = static_cast<DataType>(detail::data_type_of<std::remove_cv_t<T>>());

/// Contiguous range of elements.
template <class R>
concept ElementRange =
    std::ranges::contiguous_range<R> && std::ranges::sized_range<R> && Element<std::ranges::range_value_t<R>>;

/// View of memory that a call writes: `count` elements of `type` at `data`. The caller owns the memory.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;  ///< Number of elements.
  DataType type = DataType::f32;

  constexpr Buffer() = default;
  constexpr Buffer(void* data_, std::size_t count_, DataType type_) noexcept
      : data(data_), count(count_), type(type_) {}
  template <ElementRange R>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>) constexpr Buffer(
      R&& range) noexcept  // NOLINT(google-explicit-constructor): a view of what the caller names
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        type(data_type_v<std::ranges::range_value_t<R>>) {}
  /// Returns the bytes of the whole buffer.
  constexpr std::size_t bytes() const noexcept { return count * size_of(type); }
  constexpr bool operator==(const Buffer&) const = default;
};

/// View of memory that a call reads.
struct ConstBuffer {
  const void* data = nullptr;
  std::size_t count = 0;  ///< Number of elements.
  DataType type = DataType::f32;

  constexpr ConstBuffer() = default;
  constexpr ConstBuffer(const void* data_, std::size_t count_, DataType type_) noexcept
      : data(data_), count(count_), type(type_) {}
  constexpr ConstBuffer(const Buffer& buffer) noexcept  // NOLINT(google-explicit-constructor)
      : data(buffer.data), count(buffer.count), type(buffer.type) {}
  template <ElementRange R>
  constexpr ConstBuffer(const R& range) noexcept  // NOLINT(google-explicit-constructor)
      : data(std::ranges::data(range)),
        count(std::ranges::size(range)),
        type(data_type_v<std::ranges::range_value_t<R>>) {}
  constexpr std::size_t bytes() const noexcept { return count * size_of(type); }
  constexpr bool operator==(const ConstBuffer&) const = default;
};

/// Layout of the parts of a buffer: part r, which belongs to rank r, has counts[r] elements and begins with element
/// displacements[r].
///
/// Without displacements, the parts lie one after another and fill the buffer. With displacements, parts may have gaps
/// between them and any order. A range of counts converts to a layout without displacements. The lists must stay valid
/// until the call returns, but not until the operation of an asynchronous call ends.
struct PartLayout {
  std::span<const std::size_t> counts;         ///< Number of elements of each part, one for each rank.
  std::span<const std::size_t> displacements;  ///< First element of each part. Empty: one part after another.

  constexpr PartLayout() = default;
  constexpr PartLayout(std::span<const std::size_t> counts_, std::span<const std::size_t> displacements_) noexcept
      : counts(counts_), displacements(displacements_) {}
  template <class R>
  requires(std::convertible_to<R&&, std::span<const std::size_t>> &&
           !std::same_as<std::remove_cvref_t<R>, PartLayout>) constexpr PartLayout(R&& counts_) noexcept
      : counts(counts_) {}  // NOLINT(google-explicit-constructor): a view of what the caller names
};

/// Reduction of the program. `combine` folds `count` elements of `next` into `accumulated`, element by element.
///
/// Every rank passes an op of the same `name`. Every op must be associative. An op that is not `commutative` is applied
/// in rank order. It combines ranks 0 and 1 first, then their result with rank 2, and so on. `combine` runs on the
/// thread of any call, or on the progress thread. It must not throw and must not call the library. The object must
/// outlive the call or its Work.
///
/// An element of the op may consist of several elements of the type. An example is a pair of a value and its place,
/// passed as std::byte. `element_bytes` then is the length of that element. The library cuts a vector only between
/// elements of the op. `combine` receives whole ones, and `count` still counts elements of the type. Both pointers are
/// aligned to the largest power of two that divides `element_bytes`, at most 64.
///
/// Each count of such a call is a number of whole elements of the op. Any other count throws Error{invalid_argument}.
struct UserOp {
  /// Maximum of `element_bytes`. A message and a part of shared memory hold at least one element.
  static constexpr std::size_t kMaxElementBytes = 1024;

  std::string name;
  std::function<void(const void* next, void* accumulated, std::size_t count, DataType type)> combine;
  bool commutative = true;
  /// Bytes of one element of the op: a multiple of the bytes of the type. 0: one element of the type.
  std::size_t element_bytes = 0;
};

/// Reduction that combines contributions.
///
/// Definitions that other libraries leave open:
///
///   sum, product     integers wrap; 16-bit and 8-bit floats are accumulated in f32 in rank order and rounded once
///   average          floats: the sum divided by the number of ranks; integers: the exact mean, truncated toward zero
///   min, max         a NaN among the contributions gives NaN; -0 is less than +0
///   pre_scaled_sum   the sum of all contributions times one factor, which is equal on all ranks; floats and complex
///                    numbers only
///   bitwise_*        the operation on each bit; integers and booleans only
///   logical_*        0 is false, any other value is true, and the result is 0 or 1; integers and booleans only
///   min_loc, max_loc the least or greatest value with its index, and the lowest index if values are equal; values are
///                    ordered as by min and max, so that a NaN is the result; ValueIndex only
///
/// A sum of booleans is true if any contribution is, and so is their max. A product is true if all are, and so is their
/// min. Each result of a reduction of booleans is 0 or 1. Complex numbers have sum, average, product and
/// pre_scaled_sum. An 8-bit result beyond the greatest finite magnitude becomes that magnitude. An infinity stays one
/// in f8e5m2. Each ValueIndex of a result has bytes of 0 as padding.
class ReduceOp {
 public:
  enum class Kind : std::uint8_t {
    sum,
    average,
    product,
    min,
    max,
    pre_scaled_sum,
    user,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    logical_and,
    logical_or,
    logical_xor,
    min_loc,
    max_loc
  };

  static const ReduceOp sum, average, product, min, max, bitwise_and, bitwise_or, bitwise_xor, logical_and, logical_or,
      logical_xor, min_loc, max_loc;
  static constexpr ReduceOp pre_scaled_sum(double factor) noexcept { return {Kind::pre_scaled_sum, factor, nullptr}; }
  static constexpr ReduceOp user(const UserOp& op) noexcept { return {Kind::user, 1.0, &op}; }

  /// Returns the op of a kind that needs no further argument. pre_scaled_sum gets the factor 1, and `user` no op.
  static constexpr ReduceOp of(Kind kind) noexcept { return {kind, 1.0, nullptr}; }

  constexpr ReduceOp() = default;
  constexpr Kind kind() const noexcept { return kind_; }
  constexpr double factor() const noexcept { return factor_; }
  constexpr const UserOp* user_op() const noexcept { return user_; }
  constexpr bool operator==(const ReduceOp&) const = default;

 private:
  constexpr ReduceOp(Kind kind, double factor, const UserOp* user) noexcept
      : kind_(kind), factor_(factor), user_(user) {}
  Kind kind_ = Kind::sum;
  double factor_ = 1.0;
  const UserOp* user_ = nullptr;
};

inline constexpr ReduceOp ReduceOp::sum{Kind::sum, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::average{Kind::average, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::product{Kind::product, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::min{Kind::min, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::max{Kind::max, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::bitwise_and{Kind::bitwise_and, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::bitwise_or{Kind::bitwise_or, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::bitwise_xor{Kind::bitwise_xor, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::logical_and{Kind::logical_and, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::logical_or{Kind::logical_or, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::logical_xor{Kind::logical_xor, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::min_loc{Kind::min_loc, 1.0, nullptr};
inline constexpr ReduceOp ReduceOp::max_loc{Kind::max_loc, 1.0, nullptr};

/// Kinds of ops, in the order of ReduceOp::Kind.
inline constexpr ReduceOp::Kind kReduceKinds[] = {
    ReduceOp::Kind::sum,         ReduceOp::Kind::average,     ReduceOp::Kind::product,
    ReduceOp::Kind::min,         ReduceOp::Kind::max,         ReduceOp::Kind::pre_scaled_sum,
    ReduceOp::Kind::user,        ReduceOp::Kind::bitwise_and, ReduceOp::Kind::bitwise_or,
    ReduceOp::Kind::bitwise_xor, ReduceOp::Kind::logical_and, ReduceOp::Kind::logical_or,
    ReduceOp::Kind::logical_xor, ReduceOp::Kind::min_loc,     ReduceOp::Kind::max_loc};

namespace detail {
/// Returns a set of type classes, as bits.
constexpr std::uint8_t classes(std::same_as<TypeClass> auto... type_class) noexcept {
  return static_cast<std::uint8_t>((0 | ... | (1 << static_cast<int>(type_class))));
}
inline constexpr std::uint8_t kNumbers = classes(TypeClass::floating, TypeClass::integer, TypeClass::complex);
inline constexpr std::uint8_t kBits = classes(TypeClass::integer, TypeClass::boolean);
inline constexpr std::uint8_t kOrdered = classes(TypeClass::floating, TypeClass::integer, TypeClass::boolean);

/// Properties of an op: its name, and the classes of the types that have it.
struct OpFacts {
  std::string_view name;
  std::uint8_t classes;
};
/// Properties of all ops, in the order of ReduceOp::Kind.
inline constexpr OpFacts kOpFacts[] = {{"sum", kNumbers | kBits},
                                       {"average", kNumbers},
                                       {"product", kNumbers | kBits},
                                       {"min", kOrdered},
                                       {"max", kOrdered},
                                       {"pre_scaled_sum", classes(TypeClass::floating, TypeClass::complex)},
                                       {"user", 0xff},
                                       {"bitwise_and", kBits},
                                       {"bitwise_or", kBits},
                                       {"bitwise_xor", kBits},
                                       {"logical_and", kBits},
                                       {"logical_or", kBits},
                                       {"logical_xor", kBits},
                                       {"min_loc", classes(TypeClass::value_index)},
                                       {"max_loc", classes(TypeClass::value_index)}};
static_assert(std::size(kOpFacts) == std::size(kReduceKinds));
}  // namespace detail

COLLECTIVES_EXPORT std::string_view to_string(ReduceOp::Kind) noexcept;

/// Returns the bytes of one element of the op: those of `type`, unless a user op has longer elements.
constexpr std::size_t element_bytes_of(DataType type, const ReduceOp& op) noexcept {
  const UserOp* const user = op.user_op();
  return user != nullptr && user->element_bytes > 0 ? user->element_bytes : size_of(type);
}

/// Returns true if `type` has this kind of reduction. A call with any other reduction throws Error{invalid_argument}.
constexpr bool supports(DataType type, ReduceOp::Kind kind) noexcept {
  return (detail::kOpFacts[static_cast<std::size_t>(kind)].classes >> static_cast<int>(class_of(type)) & 1) != 0;
}
constexpr bool supports(DataType type, const ReduceOp& op) noexcept { return supports(type, op.kind()); }

}  // namespace collectives
