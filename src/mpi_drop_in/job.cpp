// Functions of Job, an MPI call that is translated to a call of this library. They run the call, and pack memory that
// has gaps.
#include "mpi_drop_in/job.hpp"

#include <cstdint>
#include <cstring>

#include "collectives/error.hpp"

namespace collectives::drop_in {
namespace {

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw Error(Errc::invalid_argument, what);
}

/// Calls `use(data, count, type)`. Replaces the address MPI_BOTTOM by another one, because MPICH's MPI_Pack refuses
/// MPI_BOTTOM.
template <class Use>
void with_base(const void* data, int count, MPI_Datatype type, Use&& use) {
  if (data != MPI_BOTTOM) return use(data, count, type);
  const MPI_Aint base = 64, back = -base;
  MPI_Datatype shifted = MPI_DATATYPE_NULL;
  check(PMPI_Type_create_hindexed(1, &count, &back, type, &shifted), "MPI_Type_create_hindexed failed");
  PMPI_Type_commit(&shifted);
  use(reinterpret_cast<const void*>(base), 1, shifted);
  PMPI_Type_free(&shifted);
}

}  // namespace

// The blocking and the asynchronous form of a function take the same arguments.
#define COLLECTIVES_PERFORM(form)                                                              \
  switch (collective) {                                                                        \
    case Collective::all_reduce: return comm.all_reduce##form(input, output, op, options);     \
    case Collective::reduce_scatter:                                                           \
      return counts.empty() ? comm.reduce_scatter##form(input, output, op, options)            \
                            : comm.reduce_scatter_v##form(input, output, counts, op, options); \
    case Collective::all_gather:                                                               \
      return counts.empty() ? comm.all_gather##form(input, output, options)                    \
                            : comm.all_gather_v##form(input, output, counts, options);         \
    case Collective::broadcast: return comm.broadcast##form(output, root, options);            \
    case Collective::reduce: return comm.reduce##form(input, output, op, root, options);       \
    case Collective::barrier: break;                                                           \
  }                                                                                            \
  return comm.barrier##form(options)

void Job::run(Communicator& comm) const { COLLECTIVES_PERFORM(); }
Work Job::begin(Communicator& comm) const { COLLECTIVES_PERFORM(_async); }

#undef COLLECTIVES_PERFORM

const std::byte* Job::packed(const void* data, int count, MPI_Datatype type, const Layout& layout) {
  const std::size_t bytes = layout.bytes * static_cast<std::size_t>(count);
  if (layout.dense || bytes == 0) return static_cast<const std::byte*>(data);
  in = std::make_unique_for_overwrite<std::byte[]>(bytes);
  with_base(data, count, type, [&](const void* from, int elements, MPI_Datatype as) {
    int position = 0;
    check(PMPI_Pack(from, elements, as, in.get(), static_cast<int>(bytes), &position, MPI_COMM_SELF),
          "MPI_Pack failed");
  });
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

void unpack(const std::byte* from, std::size_t bytes, void* to, int count, MPI_Datatype type) {
  with_base(to, count, type, [&](const void* place, int elements, MPI_Datatype as) {
    int position = 0;
    check(PMPI_Unpack(from, static_cast<int>(bytes), &position, const_cast<void*>(place), elements, as, MPI_COMM_SELF),
          "MPI_Unpack failed");
  });
}

std::shared_ptr<MPI_Datatype> held(MPI_Datatype type) {
  auto copy = std::make_unique<MPI_Datatype>(MPI_DATATYPE_NULL);
  check(PMPI_Type_dup(type, copy.get()), "MPI_Type_dup failed");
  return {copy.release(), [](MPI_Datatype* mine) {
            PMPI_Type_free(mine);
            delete mine;
          }};
}

}  // namespace collectives::drop_in
