// Implementation of Job, a call of this library that performs an MPI call of the program.
//
// A datatype of MPI may have gaps between its data, but this library needs data without gaps. A Job may therefore have
// buffers of its own. The Job packs the program's data into these buffers before the call, and unpacks the result after
// the call.
#include "mpi_drop_in/job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "communicator/foreign_calls.hpp"
#include "mpi_drop_in/decision.hpp"

namespace collectives::drop_in {
namespace {

int class_of(int code) {
  int error_class = MPI_ERR_OTHER;
  PMPI_Error_class(code, &error_class);
  return error_class;
}

void check(int code, const char* function) {
  if (code != MPI_SUCCESS) throw MpiFailure(function, code);
}

/// Calls `use(data, count, type)`. MPICH's MPI_Pack refuses MPI_BOTTOM. If `data` is MPI_BOTTOM, this function
/// therefore passes another address, and a type whose displacements are smaller by this address.
template <class Use>
void with_base(const void* data, int count, MPI_Datatype type, Use&& use) {
  if (data != MPI_BOTTOM) return use(data, count, type);
  const MPI_Aint base = 64, back = -base;
  MPI_Datatype shifted = MPI_DATATYPE_NULL;
  check(PMPI_Type_create_hindexed(1, &count, &back, type, &shifted), "MPI_Type_create_hindexed");
  PMPI_Type_commit(&shifted);
  use(reinterpret_cast<const void*>(base), 1, shifted);
  PMPI_Type_free(&shifted);
}

}  // namespace

MpiFailure::MpiFailure(const char* function, int code)
    : std::runtime_error(fmt::format("{}: {}", function, error_text(code))), error_class(class_of(code)) {}

std::string error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  PMPI_Error_string(class_of(code), text, &length);
  const std::string_view all(text, static_cast<std::size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

Call Job::call() const {
  return {.collective = collective,
          .input = collective == Collective::broadcast ? ConstBuffer(output) : input,
          .output = output,
          .op = op,
          .root = root,
          .counts = counts,
          .displacements = displacements,
          .input_parts = {input_counts, input_displacements},
          .has_counts = has_counts,
          .foreign_type = foreign_type};
}

void Job::run(Communicator& comm) const { ForeignCall::run(comm, call(), options); }
Work Job::begin(Communicator& comm) const { return ForeignCall::begin(comm, call(), options); }

const std::byte* Job::packed(const void* data, int count, MPI_Datatype type, const Layout& layout) {
  const std::size_t bytes = layout.bytes * static_cast<std::size_t>(count);
  if (layout.dense || bytes == 0) return static_cast<const std::byte*>(data);
  in = std::make_unique_for_overwrite<std::byte[]>(bytes);
  pack(data, count, type, in.get(), bytes);
  return in.get();
}

void Job::keep_apart() {
  const auto begin = reinterpret_cast<std::uintptr_t>(input.data), end = begin + input.bytes(),
             out_begin = reinterpret_cast<std::uintptr_t>(output.data), out_end = out_begin + output.bytes();
  if (begin >= out_end || out_begin >= end) return;
  in = std::make_unique_for_overwrite<std::byte[]>(input.bytes());
  std::memcpy(in.get(), input.data, input.bytes());
  input.data = in.get();
}

std::byte* Job::stage(std::size_t bytes) {
  out = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return out.get();
}

namespace {

/// Returns the length of packed memory as an int, or kMaxPackedBytes if the memory is longer.
int packed_int(std::size_t bytes) { return static_cast<int>(std::min(bytes, kMaxPackedBytes)); }

/// Divides `count` elements into pieces of at most kMaxPackedBytes bytes, because MPI counts packed bytes in ints.
/// Calls `use(data, elements, offset)` for each piece. `offset`: position of the piece in the packed memory.
template <class Use>
void by_pieces(const void* data, int count, MPI_Datatype type, std::size_t bytes, Use&& use) {
  if (bytes == 0) return;
  MPI_Aint lower = 0, extent = 0;
  const std::size_t element = bytes / static_cast<std::size_t>(count);
  const int most = static_cast<int>(std::max<std::size_t>(1, kMaxPackedBytes / element));
  if (most < count) check(PMPI_Type_get_extent(type, &lower, &extent), "MPI_Type_get_extent");
  auto address = reinterpret_cast<std::uintptr_t>(data);
  for (long done = 0; done < count; done += most) {
    const int piece = std::min(most, static_cast<int>(count - done));
    use(reinterpret_cast<const void*>(address), piece, static_cast<std::size_t>(done) * element);
    address += static_cast<std::uintptr_t>(piece * extent);
  }
}

}  // namespace

void pack(const void* from, int count, MPI_Datatype type, std::byte* to, std::size_t bytes) {
  by_pieces(from, count, type, bytes, [&](const void* data, int piece, std::size_t offset) {
    with_base(data, piece, type, [&](const void* place, int elements, MPI_Datatype as) {
      int position = 0;
      check(PMPI_Pack(place, elements, as, to + offset, packed_int(bytes - offset), &position, quiet_comm()),
            "MPI_Pack");
    });
  });
}

void unpack(const std::byte* from, std::size_t bytes, void* to, int count, MPI_Datatype type) {
  by_pieces(to, count, type, bytes, [&](const void* data, int piece, std::size_t offset) {
    with_base(data, piece, type, [&](const void* place, int elements, MPI_Datatype as) {
      int position = 0;
      check(PMPI_Unpack(from + offset, packed_int(bytes - offset), &position, const_cast<void*>(place), elements, as,
                        quiet_comm()),
            "MPI_Unpack");
    });
  });
}

std::shared_ptr<MPI_Datatype> held(MPI_Datatype type) {
  auto copy = std::make_unique<MPI_Datatype>(MPI_DATATYPE_NULL);
  check(PMPI_Type_dup(type, copy.get()), "MPI_Type_dup");
  return {copy.release(), [](MPI_Datatype* mine) {
            PMPI_Type_free(mine);
            delete mine;
          }};
}

}  // namespace collectives::drop_in
