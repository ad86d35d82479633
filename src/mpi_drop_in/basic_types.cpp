// Implementation of TypeSequence, which describes the types of the data in an MPI call.
//
// MPI requires that all ranks pass the same sequence of basic types, such as two doubles and one int. A TypeSequence
// stores a hash of this sequence. Ranks compare the hashes to find calls with different types. If all elements have one
// basic type, the TypeSequence also stores this type.
#include "mpi_drop_in/basic_types.hpp"

#include <optional>

#include "core/signature.hpp"

namespace collectives::drop_in {
namespace {

/// Returns the type of this library that equals a basic type of MPI, or nothing if there is none.
std::optional<DataType> data_type_of(std::uint64_t basic) noexcept {
  const std::size_t bytes = bytes_of(basic);
  switch (kind_of(basic)) {
    case BasicKind::signed_integer:
      if (bytes == 1) return DataType::i8;
      if (bytes == 2) return DataType::i16;
      if (bytes == 4) return DataType::i32;
      if (bytes == 8) return DataType::i64;
      break;
    case BasicKind::unsigned_integer:
      if (bytes == 1) return DataType::u8;
      if (bytes == 2) return DataType::u16;
      if (bytes == 4) return DataType::u32;
      if (bytes == 8) return DataType::u64;
      break;
    case BasicKind::floating:
      if (bytes == 4) return DataType::f32;
      if (bytes == 8) return DataType::f64;
      break;
    case BasicKind::complex:
      if (bytes == 8) return DataType::complex64;
      if (bytes == 16) return DataType::complex128;
      break;
    case BasicKind::logical:
      if (bytes == 1) return DataType::boolean;
      break;
    default: break;
  }
  return std::nullopt;
}

}  // namespace

TypeSequence::TypeSequence(std::uint64_t basic) noexcept
    : hash_(mix(basic)), power_(kFactor), only_(basic), is_empty_(false) {}

void TypeSequence::append(const TypeSequence& next) noexcept {
  if (next.is_empty_) return;
  only_ = is_empty_ || only_ == next.only_ ? next.only_ : 0;
  hash_ = hash_ * next.power_ + next.hash_;
  power_ *= next.power_;
  is_empty_ = false;
}

TypeSequence TypeSequence::repeated(std::size_t times) const noexcept {
  TypeSequence result, doubled = *this;
  for (; times > 0; times /= 2) {
    if (times % 2 != 0) result.append(doubled);
    doubled.append(doubled);
  }
  return result;
}

Elements TypeSequence::elements(std::size_t times) const noexcept {
  if (is_empty_) return {};
  if (only_ == 0) return {DataType::u8, repeated(times).hash_ | kSeveralTypes};
  if (const auto type = data_type_of(only_)) return {*type, 0};
  return {DataType::u8, only_};
}

}  // namespace collectives::drop_in
