// Functions of the structs in calls.hpp, one struct for each collective of MPI. The drop-in performs MPI calls of a
// program by this library. The function eligibility() examines the arguments of an MPI call, because the library cannot
// perform all calls. The function job() translates an MPI call to a call of the library.
#include "mpi_drop_in/calls.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <span>

#include "base/log.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {
namespace {

#ifdef MPICH
// True if MPI reports an error when send and receive buffer are the same. MPICH does.
constexpr bool kAliasIsAnError = true;
#else
constexpr bool kAliasIsAnError = false;
#endif

std::size_t times(int count, std::size_t bytes) { return static_cast<std::size_t>(count) * bytes; }

/// Returns the eligibility of a reduction. `count` is the number of elements of the whole vector.
Eligibility reducing(std::size_t count, MPI_Datatype type, MPI_Op op) {
  const auto element = arithmetic_type(type);
  if (!element) return {type == MPI_DATATYPE_NULL ? Reason::arguments : Reason::type};
  if (!reduction(op)) return {op == MPI_OP_NULL ? Reason::arguments : Reason::op};
  return {count == 0 ? Reason::empty : Reason::none, count * size_of(*element)};
}

/// Returns `eligibility`, changed so that the call is forwarded to MPI if `bad` is true. `bad` means that the arguments
/// of this rank are wrong. MPI then reports the error.
Eligibility forward_if(bool bad, Eligibility eligibility) {
  if (bad) eligibility.reason = Reason::arguments;
  return eligibility;
}

bool no_memory(const void* data, std::size_t bytes) { return data == nullptr && bytes > 0; }

/// Returns true if MPI would refuse these buffers in a call that reads `read` bytes of `send` and writes `written`
/// bytes of `receive`.
bool bad_pair(const void* send, const void* receive, std::size_t read, std::size_t written) {
  return receive == MPI_IN_PLACE || no_memory(receive, written) || (send != MPI_IN_PLACE && no_memory(send, read)) ||
         (kAliasIsAnError && send == receive && read > 0);
}

bool negative(std::span<const int> counts) {
  return std::ranges::any_of(counts, [](int count) { return count < 0; });
}

std::span<const int> of_ranks(const int* values, const CommState& state) {
  return {values, values == nullptr ? 0 : static_cast<std::size_t>(state.size())};
}

std::size_t sum(std::span<const int> counts) { return std::accumulate(counts.begin(), counts.end(), std::size_t{0}); }

bool outside(int root, const CommState& state) { return root < 0 || root >= state.size(); }

/// Returns the format in which a reduction sends its values. If COLLECTIVES_MPI_WIRE is set, sums of f32 with at least
/// coded_from_bytes bytes are sent as bf16. All other reductions send their elements unchanged. Warns once about a
/// reduction of at least this length that is no sum of f32.
WireFormat wire_of(std::size_t bytes, DataType type, const ReduceOp& op) {
  if (!settings().coded || bytes < settings().coded_from_bytes) return {};
  if (type == DataType::f32 && op == ReduceOp::sum) return DataType::bf16;
  static std::once_flag said;
  std::call_once(said, [&] {
    log_warning(kNoRank, "COLLECTIVES_MPI_WIRE is for sums of f32: {} of {} travels as it is", to_string(op.kind()),
                to_string(type));
  });
  return {};
}

Job reduction_job(Collective collective, const void* send, std::size_t read, void* receive, std::size_t written,
                  MPI_Datatype type, MPI_Op op) {
  const DataType element = *arithmetic_type(type);
  Job job{.collective = collective,
          .input = {send == MPI_IN_PLACE ? receive : send, read, element},
          .output = {receive, written, element},
          .op = *reduction(op)};
  job.options.wire = wire_of(job.input.bytes(), element, job.op);
  return job;
}

/// Returns the job of a reduce-scatter. In a call in place, MPI writes the result to the beginning of the input. The
/// library would write it to this rank's part of the input. The library therefore writes the result to memory of the
/// job. The function Job::finish copies the result to the beginning of the input.
Job scattering_job(const void* send, std::size_t read, void* receive, std::size_t written, MPI_Datatype type,
                   MPI_Op op) {
  Job job = reduction_job(Collective::reduce_scatter, send, read, receive, written, type, op);
  const std::size_t bytes = job.output.bytes();
  if (send == MPI_IN_PLACE && bytes > 0) {
    job.output.data = job.stage(bytes);
    job.finish = [from = job.output.data, receive, bytes] { std::memcpy(receive, from, bytes); };
  } else {
    job.keep_apart();
  }
  return job;
}

}  // namespace

// ---- reductions ----

Eligibility AllReduce::eligibility(const CommState&) const {
  if (count < 0) return {Reason::arguments};
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  return forward_if(bad_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
}

Job AllReduce::job(const CommState&) const {
  const auto elements = static_cast<std::size_t>(count);
  Job job = reduction_job(Collective::all_reduce, send, elements, receive, elements, type, op);
  if (job.input.data != job.output.data) job.keep_apart();
  return job;
}

Eligibility ReduceToRoot::eligibility(const CommState& state) const {
  if (count < 0 || outside(root, state)) return {Reason::arguments};
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  const bool bad = state.rank() == root ? bad_pair(send, receive, eligibility.bytes, eligibility.bytes)
                                        : send == MPI_IN_PLACE || no_memory(send, eligibility.bytes);
  return forward_if(bad, eligibility);
}

Job ReduceToRoot::job(const CommState& state) const {
  const auto elements = static_cast<std::size_t>(count);
  const bool here = state.rank() == root;
  Job job = reduction_job(Collective::reduce, send, elements, here ? receive : nullptr, here ? elements : 0, type, op);
  job.root = root;
  if (job.input.data != job.output.data) job.keep_apart();
  return job;
}

Eligibility ReduceScatter::eligibility(const CommState& state) const {
  const auto all = of_ranks(counts, state);
  if (all.empty() || negative(all)) return {Reason::arguments};
  const Eligibility eligibility = reducing(sum(all), type, op);
  return forward_if(bad_pair(send, receive, eligibility.bytes, times(counts[state.rank()], 1)), eligibility);
}

Job ReduceScatter::job(const CommState& state) const {
  const auto all = of_ranks(counts, state);
  Job job = scattering_job(send, sum(all), receive, times(counts[state.rank()], 1), type, op);
  job.counts.assign(all.begin(), all.end());
  return job;
}

Eligibility ReduceScatterBlock::eligibility(const CommState& state) const {
  if (count < 0) return {Reason::arguments};
  const Eligibility eligibility = reducing(times(count, static_cast<std::size_t>(state.size())), type, op);
  return forward_if(bad_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
}

Job ReduceScatterBlock::job(const CommState& state) const {
  const auto elements = static_cast<std::size_t>(count);
  return scattering_job(send, elements * static_cast<std::size_t>(state.size()), receive, elements, type, op);
}

// ---- calls that only move ----

namespace {

/// Returns true if this rank sends another number of bytes to an all-gather than it receives from itself. MPI then
/// reports the error.
bool gives_other_bytes(const void* send, int send_count, MPI_Datatype send_type, std::size_t bytes) {
  if (send == MPI_IN_PLACE) return false;
  const auto layout = layout_of(send_type);
  return !layout || send_count < 0 || times(send_count, layout->bytes) != bytes;
}

/// Returns the eligibility of a call without a reduction. `bytes` is the sum over all ranks, `longest` the maximum of
/// one rank.
Eligibility moving(std::size_t bytes, std::size_t longest) {
  return {bytes == 0 ? Reason::empty : longest > kMaxPackedBytes ? Reason::size : Reason::none, bytes};
}

/// Returns this rank's part of an all-gather: the send buffer, or for a call in place the part of the receive buffer at
/// `place`.
ConstBuffer part(Job& job, const void* send, int send_count, MPI_Datatype send_type, const void* place, int count,
                 MPI_Datatype type) {
  if (send == MPI_IN_PLACE) {
    send = place;
    send_count = count;
    send_type = type;
  }
  const Layout layout = *layout_of(send_type);
  return {job.packed(send, send_count, send_type, layout), times(send_count, layout.bytes), DataType::u8};
}

/// Copies this rank's part if it overlaps the output. A part exactly at `offset` bytes in the output needs no copy,
/// because the library performs this call in place.
void keep_part_apart(Job& job, std::size_t offset) {
  if (job.input.data != static_cast<const std::byte*>(job.output.data) + offset) job.keep_apart();
}

}  // namespace

Eligibility AllGather::eligibility(const CommState& state) const {
  const auto layout = layout_of(type);
  if (!layout || count < 0) return {Reason::arguments};
  const std::size_t mine = times(count, layout->bytes), bytes = mine * static_cast<std::size_t>(state.size());
  const bool bad =
      gives_other_bytes(send, send_count, send_type, mine) || (layout->dense && bad_pair(send, receive, 0, bytes)) ||
      (kAliasIsAnError && send == static_cast<std::byte*>(receive) + state.rank() * count * layout->extent);
  return forward_if(bad, moving(bytes, mine));
}

Job AllGather::job(const CommState& state) const {
  const Layout layout = *layout_of(type);
  const auto ranks = static_cast<std::size_t>(state.size());
  const std::size_t mine = times(count, layout.bytes);
  const MPI_Aint stride = count * layout.extent;
  auto* const begin = static_cast<std::byte*>(receive);
  Job job{.collective = Collective::all_gather};
  job.input = part(job, send, send_count, send_type, begin + state.rank() * stride, count, type);
  if (layout.dense) {
    job.output = {receive, mine * ranks, DataType::u8};
    keep_part_apart(job, mine * static_cast<std::size_t>(state.rank()));
    return job;
  }
  job.output = {job.stage(mine * ranks), mine * ranks, DataType::u8};
  job.finish = [from = job.out.get(), mine, ranks, begin, stride, elements = count, to = held(type)] {
    for (std::size_t r = 0; r < ranks; ++r)
      unpack(from + r * mine, mine, begin + static_cast<MPI_Aint>(r) * stride, elements, *to);
  };
  return job;
}

Eligibility AllGatherV::eligibility(const CommState& state) const {
  const auto layout = layout_of(type);
  const auto all = of_ranks(counts, state);
  if (!layout || all.empty() || places == nullptr || negative(all)) return {Reason::arguments};
  const std::size_t bytes = sum(all) * layout->bytes;
  const auto rank = static_cast<std::size_t>(state.rank());
  const bool bad =
      gives_other_bytes(send, send_count, send_type, times(all[rank], layout->bytes)) ||
      (layout->dense && bad_pair(send, receive, 0, bytes)) ||
      (kAliasIsAnError && send == static_cast<std::byte*>(receive) + places[rank] * layout->extent && all[rank] > 0);
  return forward_if(bad, moving(bytes, times(*std::ranges::max_element(all), layout->bytes)));
}

Job AllGatherV::job(const CommState& state) const {
  const Layout layout = *layout_of(type);
  const auto ranks = static_cast<std::size_t>(state.size()), rank = static_cast<std::size_t>(state.rank());
  auto* const begin = static_cast<std::byte*>(receive);
  Job job{.collective = Collective::all_gather};
  bool in_order = layout.dense;
  std::size_t total = 0, before = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    in_order = in_order && (counts[r] == 0 || places[r] * layout.extent == static_cast<MPI_Aint>(total));
    if (r == rank) before = total;
    total += job.counts.emplace_back(times(counts[r], layout.bytes));
  }
  job.input = part(job, send, send_count, send_type, begin + places[rank] * layout.extent, counts[rank], type);
  if (in_order) {
    job.output = {receive, total, DataType::u8};
    keep_part_apart(job, before);
    return job;
  }
  job.output = {job.stage(total), total, DataType::u8};
  job.finish = [from = job.out.get(), begin, extent = layout.extent, bytes = layout.bytes, to = held(type),
                elements = std::vector<int>(counts, counts + ranks), at = std::vector<int>(places, places + ranks)] {
    const std::byte* next = from;
    for (std::size_t r = 0; r < elements.size(); ++r) {
      const std::size_t theirs = times(elements[r], bytes);
      if (theirs > 0) unpack(next, theirs, begin + at[r] * extent, elements[r], *to);
      next += theirs;
    }
  };
  return job;
}

Eligibility Broadcast::eligibility(const CommState& state) const {
  const auto layout = layout_of(type);
  if (!layout || count < 0 || outside(root, state)) return {Reason::arguments};
  const std::size_t bytes = times(count, layout->bytes);
  return forward_if(data == MPI_IN_PLACE || (layout->dense && no_memory(data, bytes)), moving(bytes, bytes));
}

Job Broadcast::job(const CommState& state) const {
  const Layout layout = *layout_of(type);
  const std::size_t bytes = times(count, layout.bytes);
  Job job{.collective = Collective::broadcast, .output = {data, bytes, DataType::u8}, .root = root};
  if (layout.dense) return job;
  if (state.rank() == root) {
    job.output.data = const_cast<std::byte*>(job.packed(data, count, type, layout));
  } else {
    job.output.data = job.stage(bytes);
    job.finish = [from = job.out.get(), bytes, to = data, elements = count, as = held(type)] {
      unpack(from, bytes, to, elements, *as);
    };
  }
  return job;
}

}  // namespace collectives::drop_in
