// Equal reductions. A reduction is an op on an element type. Two reductions are equal if they give the same bits. For
// example, a sum of complex64 elements equals a sum of twice as many f32 elements. The library has one loop and one GPU
// kernel for all equal reductions. In the example, these are the loop and the kernel of f32.
#pragma once

#include <cstddef>

#include "collectives/types.hpp"

namespace collectives {

/// Reduction that gives the same bits as a given reduction. It performs op `kind` on elements of `type`. One element of
/// the given type consists of `times` elements of `type`.
struct EqualReduction {
  ReduceOp::Kind kind;
  DataType type;
  std::size_t times = 1;
};

/// Returns the unsigned integer type of the same size as `type`.
constexpr DataType unsigned_of(DataType type) noexcept {
  switch (size_of(type)) {
    case 1: return DataType::u8;
    case 2: return DataType::u16;
    case 4: return DataType::u32;
    default: return DataType::u64;
  }
}

/// Returns the logical op that gives the same results as `kind` on booleans: logical_and, logical_or or logical_xor.
constexpr ReduceOp::Kind logical_of(ReduceOp::Kind kind) noexcept {
  using Kind = ReduceOp::Kind;
  if (kind == Kind::bitwise_xor || kind == Kind::logical_xor) return Kind::logical_xor;
  const bool all = kind == Kind::product || kind == Kind::min || kind == Kind::bitwise_and || kind == Kind::logical_and;
  return all ? Kind::logical_and : Kind::logical_or;
}

/// Returns the reduction whose loop performs op `kind` on `type`. Requires that `type` supports `kind`, and that `kind`
/// is no user op.
///
///   booleans            logical ops of u8
///   complex numbers     the same op of their floats, except for product
///   bitwise ops         the same op on bytes
///   signed integers     the same op on unsigned integers, for sums, products and logical ops
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
