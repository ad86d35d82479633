// Basic types: ranks, element types, reductions and typed views of memory.
//
// A call takes its memory as a Buffer: a pointer, a number of elements and an element type. Memory that a call only
// reads is a ConstBuffer. A contiguous range of elements converts to either. A range of const elements converts only to
// a ConstBuffer. `comm.all_reduce(gradient, sum, ReduceOp::sum)` therefore takes vectors, arrays and spans.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "collectives/export.hpp"

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

enum class DataType : std::uint8_t { f32, f64, f16, bf16, i8, u8, i32, u32, i64, u64 };

/// Location of the buffers of a call: memory of the CPU (host) or of a GPU (device).
enum class Memory : std::uint8_t { host, device };

inline constexpr Collective kCollectives[] = {
    Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,    Collective::broadcast,
    Collective::reduce,     Collective::barrier,        Collective::all_to_all,    Collective::gather,
    Collective::scatter,    Collective::scan,           Collective::exclusive_scan};
inline constexpr DataType kDataTypes[] = {DataType::f32, DataType::f64, DataType::f16, DataType::bf16, DataType::i8,
                                          DataType::u8,  DataType::i32, DataType::u32, DataType::i64,  DataType::u64};

COLLECTIVES_EXPORT std::string_view to_string(Collective) noexcept;
COLLECTIVES_EXPORT std::string_view to_string(Memory) noexcept;
COLLECTIVES_EXPORT std::string_view to_string(DataType) noexcept;

/// Returns the bytes of one element.
constexpr std::size_t size_of(DataType type) noexcept {
  switch (type) {
    case DataType::i8:
    case DataType::u8: return 1;
    case DataType::f16:
    case DataType::bf16: return 2;
    case DataType::f32:
    case DataType::i32:
    case DataType::u32: return 4;
    case DataType::f64:
    case DataType::i64:
    case DataType::u64: return 8;
  }
  return 0;
}

constexpr bool is_floating(DataType type) noexcept {
  return type == DataType::f32 || type == DataType::f64 || type == DataType::f16 || type == DataType::bf16;
}

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

namespace detail {
template <class T>
consteval int data_type_of() {
  if constexpr (std::same_as<T, float>) return static_cast<int>(DataType::f32);
  if constexpr (std::same_as<T, double>) return static_cast<int>(DataType::f64);
  if constexpr (std::same_as<T, float16>) return static_cast<int>(DataType::f16);
  if constexpr (std::same_as<T, bfloat16>) return static_cast<int>(DataType::bf16);
  if constexpr (std::same_as<T, std::byte>) return static_cast<int>(DataType::u8);
  if constexpr (std::integral<T> && !std::same_as<T, bool>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return static_cast<int>(is_signed ? DataType::i8 : DataType::u8);
    if constexpr (sizeof(T) == 4) return static_cast<int>(is_signed ? DataType::i32 : DataType::u32);
    if constexpr (sizeof(T) == 8) return static_cast<int>(is_signed ? DataType::i64 : DataType::u64);
  }
  return -1;
}
}  // namespace detail

/// Element type of collectives: float, double, float16, bfloat16, 8-, 32- and 64-bit integers, std::byte.
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
///   sum, product     integers wrap; 16-bit floats are accumulated in f32 in rank order and rounded once
///   average          floats: the sum divided by the number of ranks; integers: the exact mean, truncated toward zero
///   min, max         a NaN among the contributions gives NaN; -0 is less than +0
///   pre_scaled_sum   the sum of all contributions times one factor, which is equal on all ranks; floats only
class ReduceOp {
 public:
  enum class Kind : std::uint8_t { sum, average, product, min, max, pre_scaled_sum, user };

  static const ReduceOp sum, average, product, min, max;
  static constexpr ReduceOp pre_scaled_sum(double factor) noexcept { return {Kind::pre_scaled_sum, factor, nullptr}; }
  static constexpr ReduceOp user(const UserOp& op) noexcept { return {Kind::user, 1.0, &op}; }

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

COLLECTIVES_EXPORT std::string_view to_string(ReduceOp::Kind) noexcept;

/// Returns the bytes of one element of the op: those of `type`, unless a user op has longer elements.
constexpr std::size_t element_bytes_of(DataType type, const ReduceOp& op) noexcept {
  const UserOp* const user = op.user_op();
  return user != nullptr && user->element_bytes > 0 ? user->element_bytes : size_of(type);
}

/// Returns true if `type` has this reduction. A call with any other reduction throws Error{invalid_argument}.
constexpr bool supports(DataType type, const ReduceOp& op) noexcept {
  return op.kind() != ReduceOp::Kind::pre_scaled_sum || is_floating(type);
}

}  // namespace collectives
