// Functions that translate datatypes and ops of MPI to those of this library. They are part of the drop-in, a library
// that users preload into an MPI program.
//
// A handle, such as MPI_INT, names a datatype. A hash table maps the handles of all predefined types to their
// descriptions. A program builds derived types from other types. Functions of MPI return from which types a derived
// type is built.
#include "mpi_drop_in/types.hpp"

#include <link.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string_view>
#include <type_traits>
#include <vector>

#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {
namespace {

using enum BasicKind;

/// Returns a handle as an integer. Handles are pointers in Open MPI and ints in MPICH.
template <class Handle>
std::uintptr_t word_of(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>)
    return reinterpret_cast<std::uintptr_t>(handle);
  else
    return static_cast<std::uintptr_t>(static_cast<unsigned>(handle));
}

/// Hash table that maps handles to predefined types. It uses open addressing, and is at most a quarter full.
class Table {
 public:
  struct Entry {
    std::uintptr_t handle = 0;
    ReducedType reduced = {};  ///< Type in reductions. If it has no ops, values are only moved.
    Layout layout = {};
  };
  /// Adds a type. `ops`: the classes of ops that MPI allows for the type. Ignores `ops` if the library lacks the type.
  void add(MPI_Datatype type, BasicKind kind, OpClasses ops) {
    const std::size_t size = size_of_new(type);
    if (size == 0) return;
    const TypeSequence sequence(basic_type(kind, size));
    const Elements one = sequence.elements(1);
    const bool has_it = one.foreign_type == 0 || kind == byte;
    entries_[place_of(type)] = {
        word_of(type), {one.type, has_it ? ops : 0}, {size, static_cast<MPI_Aint>(size), true, sequence}};
  }
  /// Adds a type that consists of a value and an index, such as MPI_DOUBLE_INT. Allows ops for it if the library has a
  /// type of the same layout.
  void add_pair(MPI_Datatype pair, MPI_Datatype value, MPI_Datatype index) {
    const std::size_t size = size_of_new(pair);
    const Entry *const first = find(value), *const second = find(index);
    if (size == 0 || first == nullptr || second == nullptr) return;
    MPI_Aint lower = 0, extent = 0;
    PMPI_Type_get_extent(pair, &lower, &extent);
    TypeSequence sequence = first->layout.types;
    sequence.append(second->layout.types);
    const std::optional<DataType> type = pair_of(first->reduced.type, second->reduced.type);
    const bool has_it = type && static_cast<std::size_t>(extent) == collectives::size_of(*type);
    entries_[place_of(pair)] = {word_of(pair),
                                {has_it ? *type : DataType::u8, has_it ? kLocations : 0},
                                {size, extent, extent == static_cast<MPI_Aint>(size), sequence}};
  }
  const Entry* find(MPI_Datatype type) const noexcept {
    const Entry& entry = entries_[place_of(type)];
    return entry.handle == 0 ? nullptr : &entry;
  }

 private:
  /// Returns the number of bytes of a type that is not in the table yet. Returns 0 if it is in the table, or if this
  /// MPI lacks the type.
  std::size_t size_of_new(MPI_Datatype type) const noexcept {
    int bytes = 0;
    const bool is_there = type != MPI_DATATYPE_NULL && word_of(type) != 0 && find(type) == nullptr &&
                          PMPI_Type_size(type, &bytes) == MPI_SUCCESS && bytes > 0;
    return is_there ? static_cast<std::size_t>(bytes) : 0;
  }
  /// Returns the library's type of a value and an index of these types.
  static std::optional<DataType> pair_of(DataType value, DataType index) noexcept {
    if (index != DataType::i32) return std::nullopt;
    switch (value) {
      case DataType::f32: return DataType::f32_index;
      case DataType::f64: return DataType::f64_index;
      case DataType::i64: return DataType::i64_index;
      case DataType::i32: return DataType::i32_index;
      case DataType::i16: return DataType::i16_index;
      default: return std::nullopt;
    }
  }
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

void add_all(BasicKind kind, OpClasses ops, std::initializer_list<MPI_Datatype> types) {
  for (const MPI_Datatype type : types) table.add(type, kind, ops);
}

/// Adds the types without gaps. MPI_CHAR counts as a signed integer, because programs mix them.
///
/// The op classes are those of the MPI standard. Exception: MPI_LOGICAL has none, because its value of true depends on
/// the Fortran compiler.
void add_basic_types() {
  constexpr OpClasses kNumbers = kSums | kOrders, kIntegers = kNumbers | kBitwise;
  add_all(signed_integer, kIntegers | kLogical,
          {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T,
           MPI_INT64_T});
  add_all(unsigned_integer, kIntegers | kLogical,
          {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
           MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T});
  add_all(signed_integer, kIntegers,
          {MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4, MPI_INTEGER8});
  // An option of the Fortran compiler may have made REAL longer.
  add_all(floating, kNumbers,
          {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8});
  add_all(complex, kSums,
          {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_CXX_FLOAT_COMPLEX,
           MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX, MPI_COMPLEX8,
           MPI_COMPLEX16});
  add_all(logical, kLogical, {MPI_C_BOOL, MPI_CXX_BOOL});
  add_all(logical, 0, {MPI_LOGICAL});
  add_all(signed_integer, 0, {MPI_CHAR, MPI_CHARACTER});
  add_all(wide_character, 0, {MPI_WCHAR});
  add_all(byte, kBitwise, {MPI_BYTE});
  add_all(packed, 0, {MPI_PACKED});
}

/// Adds the types of a value and an index. Some have a gap between the two, or after them.
void add_pairs() {
  table.add_pair(MPI_FLOAT_INT, MPI_FLOAT, MPI_INT);
  table.add_pair(MPI_DOUBLE_INT, MPI_DOUBLE, MPI_INT);
  table.add_pair(MPI_LONG_INT, MPI_LONG, MPI_INT);
  table.add_pair(MPI_2INT, MPI_INT, MPI_INT);
  table.add_pair(MPI_SHORT_INT, MPI_SHORT, MPI_INT);
  table.add_pair(MPI_LONG_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_INT);
  table.add_pair(MPI_2INTEGER, MPI_INTEGER, MPI_INTEGER);
  table.add_pair(MPI_2REAL, MPI_REAL, MPI_REAL);
  table.add_pair(MPI_2DOUBLE_PRECISION, MPI_DOUBLE_PRECISION, MPI_DOUBLE_PRECISION);
}

// ---- derived types ----

MPI_Comm quiet = MPI_COMM_NULL;
int layout_keyval = MPI_KEYVAL_INVALID;
std::mutex& layout_mutex = *new std::mutex;  // held while a layout is made; never destroyed

int forget_layout(MPI_Datatype, int, void* layout, void*) noexcept {
  delete static_cast<Layout*>(layout);
  return MPI_SUCCESS;
}

TypeSequence sequence_of(MPI_Datatype type);

/// Returns the basic types of a derived type. All types but structs repeat one type, whose number follows from the
/// sizes.
TypeSequence derived_sequence(MPI_Datatype type, std::size_t bytes, int integers, int addresses, int types,
                              int combiner) {
  std::vector<int> numbers(static_cast<std::size_t>(integers) + 1);
  std::vector<MPI_Aint> places(static_cast<std::size_t>(addresses) + 1);
  std::vector<MPI_Datatype> parts(static_cast<std::size_t>(types));
  TypeSequence sequence;
  if (PMPI_Type_get_contents(type, integers, addresses, types, numbers.data(), places.data(), parts.data()) !=
      MPI_SUCCESS)
    return TypeSequence(basic_type(other, bytes));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    int size = 0, ignored = 0, kind = MPI_COMBINER_NAMED;
    PMPI_Type_size(parts[i], &size);
    const std::size_t times = combiner == MPI_COMBINER_STRUCT ? static_cast<std::size_t>(numbers[i + 1])
                              : size > 0                      ? bytes / static_cast<std::size_t>(size)
                                                              : 0;
    if (size > 0 && times > 0) sequence.append(sequence_of(parts[i]).repeated(times));
    PMPI_Type_get_envelope(parts[i], &ignored, &ignored, &ignored, &kind);
    if (kind != MPI_COMBINER_NAMED) PMPI_Type_free(&parts[i]);
  }
  return sequence;
}

/// Returns the basic types of one element.
TypeSequence sequence_of(MPI_Datatype type) {
  if (const auto* const found = table.find(type)) return found->layout.types;
  int size = 0, integers = 0, addresses = 0, types = 0, combiner = 0;
  if (PMPI_Type_size(type, &size) != MPI_SUCCESS || size <= 0) return {};
  const auto bytes = static_cast<std::size_t>(size);
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  switch (combiner) {
    case MPI_COMBINER_NAMED: return TypeSequence(basic_type(other, bytes));
    case MPI_COMBINER_F90_INTEGER: return TypeSequence(basic_type(signed_integer, bytes));
    case MPI_COMBINER_F90_REAL: return TypeSequence(basic_type(floating, bytes));
    case MPI_COMBINER_F90_COMPLEX: return TypeSequence(basic_type(complex, bytes));
    default: return derived_sequence(type, bytes, integers, addresses, types, combiner);
  }
}

bool is_committed(MPI_Datatype type) {
  char memory[1] = {};
  int position = 0;
  return PMPI_Pack(memory, 0, type, memory, 1, &position, quiet) == MPI_SUCCESS;
}

Layout make_layout(MPI_Datatype type) {
  int bytes = 0, integers = 0, addresses = 0, types = 0, combiner = 0;
  MPI_Aint lower = 0, extent = 0;
  PMPI_Type_size(type, &bytes);
  PMPI_Type_get_extent(type, &lower, &extent);
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  if (bytes == MPI_UNDEFINED) return {kMaxPackedBytes + 1, extent, false, {}};
  return {static_cast<std::size_t>(bytes), extent, combiner == MPI_COMBINER_NAMED && extent == bytes,
          sequence_of(type)};
}

/// Returns the layout that is an attribute of the type, or null.
const Layout* known_layout(MPI_Datatype type) {
  void* layout = nullptr;
  int there = 0;
  PMPI_Type_get_attr(type, layout_keyval, &layout, &there);
  return there != 0 ? static_cast<const Layout*>(layout) : nullptr;
}

}  // namespace

void init_types() {
  PMPI_Comm_dup(MPI_COMM_SELF, &quiet);
  PMPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
  add_basic_types();
  add_pairs();
  PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget_layout, &layout_keyval, nullptr);
}

void end_types() noexcept { PMPI_Comm_free(&quiet); }

MPI_Comm quiet_comm() noexcept { return quiet; }

std::optional<ReducedType> reduced_type(MPI_Datatype type) noexcept {
  const auto* const found = table.find(type);
  return found != nullptr && found->reduced.ops != 0 ? std::optional(found->reduced) : std::nullopt;
}

std::optional<KnownOp> known_op(MPI_Op op) noexcept {
  if (op == MPI_SUM) return KnownOp{ReduceOp::sum, kSums};
  if (op == MPI_MAX) return KnownOp{ReduceOp::max, kOrders};
  if (op == MPI_MIN) return KnownOp{ReduceOp::min, kOrders};
  if (op == MPI_PROD) return KnownOp{ReduceOp::product, kSums};
  if (op == MPI_LAND) return KnownOp{ReduceOp::logical_and, kLogical};
  if (op == MPI_LOR) return KnownOp{ReduceOp::logical_or, kLogical};
  if (op == MPI_LXOR) return KnownOp{ReduceOp::logical_xor, kLogical};
  if (op == MPI_BAND) return KnownOp{ReduceOp::bitwise_and, kBitwise};
  if (op == MPI_BOR) return KnownOp{ReduceOp::bitwise_or, kBitwise};
  if (op == MPI_BXOR) return KnownOp{ReduceOp::bitwise_xor, kBitwise};
  if (op == MPI_MINLOC) return KnownOp{ReduceOp::min_loc, kLocations};
  if (op == MPI_MAXLOC) return KnownOp{ReduceOp::max_loc, kLocations};
  return std::nullopt;
}

const Layout* layout_of(MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL) return nullptr;
  if (const auto* const found = table.find(type)) return &found->layout;
  if (const Layout* const known = known_layout(type)) return known;
  const std::lock_guard lock(layout_mutex);
  if (const Layout* const known = known_layout(type)) return known;
  if (!is_committed(type)) return nullptr;
  auto made = std::make_unique<Layout>(make_layout(type));
  PMPI_Type_set_attr(type, layout_keyval, made.get());
  return made.release();
}

bool may_pack() noexcept {
  const auto has_names = [](dl_phdr_info* object, std::size_t, void*) -> int {
    using namespace std::string_view_literals;
    const std::string_view file(object->dlpi_name);
    if (file.find("/libmpi") != file.npos || file.find("/libcollectives_mpi") != file.npos) return 0;
    const ElfW(Dyn)* entry = nullptr;
    for (int i = 0; i < object->dlpi_phnum; ++i)
      if (object->dlpi_phdr[i].p_type == PT_DYNAMIC)
        entry = reinterpret_cast<const ElfW(Dyn)*>(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
    ElfW(Addr) names = 0;
    std::size_t bytes = 0;
    for (; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) names = entry->d_un.d_ptr;
      if (entry->d_tag == DT_STRSZ) bytes = entry->d_un.d_val;
    }
    if (names == 0) return 0;
    if (names < object->dlpi_addr) names += object->dlpi_addr;  // the kernel's object, which no linker has relocated
    const std::string_view text(reinterpret_cast<const char*>(names), bytes);
    for (const std::string_view name : {"MPI_Pack\0"sv, "MPI_Unpack\0"sv, "MPI_Pack_external\0"sv,
                                        "MPI_Unpack_external\0"sv, "mpi_pack_"sv, "mpi_unpack_"sv})
      if (text.find(name) != text.npos) return 1;
    return 0;
  };
  return ::dl_iterate_phdr(has_names, nullptr) != 0;
}

}  // namespace collectives::drop_in
