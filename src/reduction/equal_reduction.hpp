// Equal reductions: many reductions of one type give the bits of a reduction of another type. There are loops and GPU
// kernels only for the latter. An example is a sum of complex64, which is a sum of twice as many f32.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Reduction with the bits of another one: `kind` of `type`. Each element of the other type is `times` elements of
/// `type`.
struct EqualReduction {
  ReduceOp::Kind kind;
  DataType type;
  std::size_t times = 1;
};

/// Returns the unsigned integer of the same size.
constexpr DataType unsigned_of(DataType type) noexcept {
  switch (size_of(type)) {
    case 1: return DataType::u8;
    case 2: return DataType::u16;
    case 4: return DataType::u32;
    default: return DataType::u64;
  }
}

/// Returns the op of booleans that gives the same results: logical_and, logical_or or logical_xor.
constexpr ReduceOp::Kind logical_of(ReduceOp::Kind kind) noexcept {
  using Kind = ReduceOp::Kind;
  if (kind == Kind::bitwise_xor || kind == Kind::logical_xor) return Kind::logical_xor;
  const bool all = kind == Kind::product || kind == Kind::min || kind == Kind::bitwise_and || kind == Kind::logical_and;
  return all ? Kind::logical_and : Kind::logical_or;
}

/// Returns the reduction whose loop performs `kind` of `type`. Requires that `type` supports `kind`, which is no user
/// op.
///
///   booleans            logical ops of u8
///   complex numbers     the same op of their floats, except for product
///   bitwise ops         those of bytes
///   signed integers     the unsigned ones in sums, products and logical ops
constexpr EqualReduction equal_reduction(ReduceOp::Kind kind, DataType type) noexcept {
  using Kind = ReduceOp::Kind;
  switch (class_of(type)) {
    case TypeClass::boolean: return {logical_of(kind), DataType::u8};
    case TypeClass::complex:
      if (kind == Kind::product) break;
      return {kind, type == DataType::complex64 ? DataType::f32 : DataType::f64, 2};
    case TypeClass::integer:
      if (kind == Kind::bitwise_and || kind == Kind::bitwise_or || kind == Kind::bitwise_xor)
        return {kind, DataType::u8, size_of(type)};
      if (kind != Kind::average && kind != Kind::min && kind != Kind::max) return {kind, unsigned_of(type)};
      break;
    case TypeClass::floating:
    case TypeClass::value_index: break;
  }
  return {kind, type};
}

}  // namespace collectives
