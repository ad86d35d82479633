// Functions that translate datatypes and ops of MPI to those of this library. A table holds MPI's predefined types.
#include "mpi_drop_in/types.hpp"

#include <array>
#include <bit>
#include <cstdint>
#include <type_traits>

namespace collectives::drop_in {
namespace {

/// Returns a handle as a word. Handles are pointers in Open MPI and ints in MPICH.
template <class Handle>
std::uintptr_t word_of(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<std::uintptr_t>(handle);
  else
    return static_cast<std::uintptr_t>(static_cast<unsigned>(handle));
}

/// Hash table from handles to types, with open addressing. It is at most a quarter full.
class Table {
 public:
  struct Entry {
    std::uintptr_t handle = 0;
    DataType type = DataType::u8;
    bool arithmetic = false;  ///< False: values are only moved.
  };
  void add(MPI_Datatype type, DataType as, bool arithmetic) {
    if (type == MPI_DATATYPE_NULL || word_of(type) == 0) return;  // a Fortran type that this MPI was built without
    entries_[place_of(type)] = {word_of(type), as, arithmetic};
  }
  const Entry* find(MPI_Datatype type) const noexcept {
    const Entry& entry = entries_[place_of(type)];
    return entry.handle == 0 ? nullptr : &entry;
  }

 private:
  /// Returns the place of `type`'s entry, or the place where it would be inserted.
  std::size_t place_of(MPI_Datatype type) const noexcept {
    std::size_t place = (word_of(type) * 0x9e3779b97f4a7c15ULL) >> 56U;
    while (entries_[place].handle != 0 && entries_[place].handle != word_of(type))
      place = (place + 1) % entries_.size();
    return place;
  }
  std::array<Entry, 256> entries_ = {};
};
Table table;

constexpr DataType signed_of(std::size_t bytes) {
  return bytes == 1 ? DataType::i8 : bytes == 4 ? DataType::i32 : DataType::i64;
}
constexpr DataType unsigned_of(std::size_t bytes) {
  return bytes == 1 ? DataType::u8 : bytes == 4 ? DataType::u32 : DataType::u64;
}

}  // namespace

void init_types() {
  const auto number = [](MPI_Datatype type, DataType as) { table.add(type, as, true); };
  number(MPI_FLOAT, DataType::f32);
  number(MPI_DOUBLE, DataType::f64);
  number(MPI_SIGNED_CHAR, DataType::i8);
  number(MPI_UNSIGNED_CHAR, DataType::u8);
  number(MPI_INT, signed_of(sizeof(int)));
  number(MPI_UNSIGNED, unsigned_of(sizeof(unsigned)));
  number(MPI_LONG, signed_of(sizeof(long)));
  number(MPI_UNSIGNED_LONG, unsigned_of(sizeof(unsigned long)));
  number(MPI_LONG_LONG, signed_of(sizeof(long long)));
  number(MPI_UNSIGNED_LONG_LONG, unsigned_of(sizeof(unsigned long long)));
  number(MPI_INT8_T, DataType::i8);
  number(MPI_UINT8_T, DataType::u8);
  number(MPI_INT32_T, DataType::i32);
  number(MPI_UINT32_T, DataType::u32);
  number(MPI_INT64_T, DataType::i64);
  number(MPI_UINT64_T, DataType::u64);
  number(MPI_AINT, signed_of(sizeof(MPI_Aint)));
  number(MPI_OFFSET, signed_of(sizeof(MPI_Offset)));
  number(MPI_COUNT, signed_of(sizeof(MPI_Count)));
  number(MPI_INTEGER, signed_of(sizeof(MPI_Fint)));
  number(MPI_INTEGER1, DataType::i8);
  number(MPI_INTEGER4, DataType::i32);
  number(MPI_INTEGER8, DataType::i64);
  number(MPI_REAL4, DataType::f32);
  number(MPI_REAL8, DataType::f64);
  int bytes = 0;  // bytes of the Fortran type; an option of the Fortran compiler may have made REAL longer
  if (PMPI_Type_size(MPI_REAL, &bytes) == MPI_SUCCESS && bytes == 4) number(MPI_REAL, DataType::f32);
  if (PMPI_Type_size(MPI_DOUBLE_PRECISION, &bytes) == MPI_SUCCESS && bytes == 8)
    number(MPI_DOUBLE_PRECISION, DataType::f64);
  for (const MPI_Datatype type : {MPI_BYTE, MPI_CHAR, MPI_PACKED}) table.add(type, DataType::u8, false);
}

std::optional<DataType> arithmetic_type(MPI_Datatype type) noexcept {
  const auto* const found = table.find(type);
  return found != nullptr && found->arithmetic ? std::optional(found->type) : std::nullopt;
}

std::optional<ReduceOp> reduction(MPI_Op op) noexcept {
  if (op == MPI_SUM) return ReduceOp::sum;
  if (op == MPI_MAX) return ReduceOp::max;
  if (op == MPI_MIN) return ReduceOp::min;
  if (op == MPI_PROD) return ReduceOp::product;
  return std::nullopt;
}

std::optional<Layout> layout_of(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return std::nullopt;
  if (const auto* const found = table.find(type)) {
    const std::size_t bytes = size_of(found->type);
    return Layout{bytes, static_cast<MPI_Aint>(bytes), true};
  }
  int bytes = 0, integers = 0, addresses = 0, types = 0, combiner = 0;
  MPI_Aint lower = 0, extent = 0;
  if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes == MPI_UNDEFINED ||
      PMPI_Type_get_extent(type, &lower, &extent) != MPI_SUCCESS ||
      PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner) != MPI_SUCCESS)
    return std::nullopt;
  return Layout{static_cast<std::size_t>(bytes), extent, combiner == MPI_COMBINER_NAMED && extent == bytes};
}

}  // namespace collectives::drop_in
