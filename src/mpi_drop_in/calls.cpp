// Collectives of MPI in the drop-in, such as MPI_Allreduce. The drop-in is a library that an MPI program preloads. It
// performs collectives of the program in place of MPI.
//
// Each struct of calls.hpp holds the arguments of one call, and has two functions. The function eligibility() returns
// whether this library can perform the call, and the reason if it cannot. The function job() translates the MPI call to
// a call of this library.
#include "mpi_drop_in/calls.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/log.hpp"
#include "core/collective.hpp"
#include "mpi_drop_in/arguments.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {
namespace {

/// Returns whether the library can perform a reduction. `count`: number of elements of the whole vector.
Eligibility reducing(std::size_t count, MPI_Datatype type, MPI_Op op) {
  const auto element = reduced_type(type);
  if (!element) return type == MPI_DATATYPE_NULL ? refused(Wrong::type) : Eligibility{.reason = Reason::type};
  const auto known = known_op(op);
  if (!known) return op == MPI_OP_NULL ? refused(Wrong::op) : Eligibility{.reason = Reason::op};
  if ((element->ops & known->op_class) == 0) return {.reason = Reason::op};
  return {.reason = count == 0 ? Reason::empty : Reason::none, .bytes = count * size_of(element->type)};
}

/// Returns the format in which a reduction sends its values. If COLLECTIVES_MPI_WIRE is set, sums of f32 with at least
/// coded_from_bytes bytes are sent as bf16. All other reductions send their elements unchanged. Logs one warning about
/// a reduction of at least coded_from_bytes bytes that is no sum of f32.
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
  const DataType element = reduced_type(type)->type;
  Job job{.collective = collective,
          .input = {send == MPI_IN_PLACE ? receive : send, read, element},
          .output = {receive, written, element},
          .op = known_op(op)->op};
  if (!is_scan(collective)) job.options.wire = wire_of(job.input.bytes(), element, job.op);
  return job;
}

/// Returns the job of a reduce-scatter. In a call in place, MPI writes the result to the beginning of the input. This
/// library would write it to this rank's part of the input. The job therefore has memory of its own for the result, and
/// Job::finish copies the result to the beginning of the input.
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

/// Returns the job of a scan. Its values are never sent as bf16.
Job scan_job(Collective collective, const void* send, std::size_t read, void* receive, std::size_t written,
             MPI_Datatype type, MPI_Op op) {
  Job job = reduction_job(collective, send, read, receive, written, type, op);
  if (job.input.data != job.output.data) job.keep_apart();
  return job;
}

}  // namespace

// ---- reductions ----

Eligibility AllReduce::eligibility(const CommState&) const {
  if (count < 0) return refused(Wrong::count);
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  return unless(wrong_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
}

Job AllReduce::job(const CommState&) const {
  const auto elements = static_cast<std::size_t>(count);
  Job job = reduction_job(Collective::all_reduce, send, elements, receive, elements, type, op);
  if (job.input.data != job.output.data) job.keep_apart();
  return job;
}

Eligibility ReduceToRoot::eligibility(const CommState& state) const {
  if (count < 0) return refused(Wrong::count);
  if (outside(root, state)) return refused(Wrong::root);
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  if (state.rank() == root) return unless(wrong_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
  if (send == MPI_IN_PLACE) return unless(Wrong::in_place, eligibility);
  return unless(wrong_send(send, eligibility.bytes), eligibility);
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
  if (all.empty()) return refused(Wrong::counts);
  if (negative(all)) return refused(Wrong::count);
  const Eligibility eligibility = reducing(sum(all), type, op);
  return unless(wrong_pair(send, receive, eligibility.bytes, times(counts[state.rank()], 1)), eligibility);
}

Job ReduceScatter::job(const CommState& state) const {
  const auto all = of_ranks(counts, state);
  Job job = scattering_job(send, sum(all), receive, times(counts[state.rank()], 1), type, op);
  job.has_counts = true;
  job.counts.assign(all.begin(), all.end());
  return job;
}

Eligibility ReduceScatterBlock::eligibility(const CommState& state) const {
  if (count < 0) return refused(Wrong::count);
  const Eligibility eligibility = reducing(times(count, static_cast<std::size_t>(state.size())), type, op);
  return unless(wrong_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
}

Job ReduceScatterBlock::job(const CommState& state) const {
  const auto elements = static_cast<std::size_t>(count);
  return scattering_job(send, elements * static_cast<std::size_t>(state.size()), receive, elements, type, op);
}

Eligibility Scan::eligibility(const CommState&) const {
  if (count < 0) return refused(Wrong::count);
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  return unless(wrong_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
}

Job Scan::job(const CommState&) const {
  const auto elements = static_cast<std::size_t>(count);
  return scan_job(Collective::scan, send, elements, receive, elements, type, op);
}

Eligibility ExclusiveScan::eligibility(const CommState& state) const {
  if (count < 0) return refused(Wrong::count);
  const Eligibility eligibility = reducing(static_cast<std::size_t>(count), type, op);
  if (state.rank() > 0 || send == MPI_IN_PLACE)
    return unless(wrong_pair(send, receive, eligibility.bytes, eligibility.bytes), eligibility);
  return unless(wrong_send(send, eligibility.bytes), eligibility);
}

Job ExclusiveScan::job(const CommState& state) const {
  const auto elements = static_cast<std::size_t>(count);
  return scan_job(Collective::exclusive_scan, send, elements, receive, state.rank() > 0 ? elements : 0, type, op);
}

// ---- calls that only move ----

namespace {

/// Sets this rank's part of an all-gather to the send buffer. In a call in place, sets it to the part of the receive
/// buffer at `place`. MPI demands that the part has the basic types of `count` elements of `type`. If it has not, the
/// foreign type of the call differs from that of other ranks.
void set_part(Job& job, const void* send, int send_count, MPI_Datatype send_type, const void* place, int count,
              MPI_Datatype type) {
  const Layout &received = *layout_of(type), *sent = &received;
  if (send == MPI_IN_PLACE) {
    send = place;
    send_count = count;
    send_type = type;
  } else if (send_type != type) {
    sent = layout_of(send_type);
    if (count > 0)
      compare_own_part(job, elements_of(*sent, times(send_count, 1)), elements_of(received, times(count, 1)));
  }
  job.input = {job.packed(send, send_count, send_type, *sent), numbers_in(times(count, 1), received, job.output.type),
               job.output.type};
}

}  // namespace

Eligibility AllGather::eligibility(const CommState& state) const {
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  if (count < 0) return refused(Wrong::count);
  const std::size_t mine = times(count, layout->bytes), bytes = mine * static_cast<std::size_t>(state.size());
  Wrong found = wrong_part(send, send_count, send_type, mine);
  if (found == Wrong::none && layout->dense) found = wrong_pair(send, receive, 0, bytes);
  if (found == Wrong::none)
    found = wrong_alias(send, static_cast<std::byte*>(receive) + state.rank() * count * layout->extent);
  return unless(found, moving(bytes, mine));
}

Job AllGather::job(const CommState& state) const {
  const Layout& layout = *layout_of(type);
  const auto ranks = static_cast<std::size_t>(state.size());
  const std::size_t mine = times(count, layout.bytes);
  const MPI_Aint stride = count * layout.extent;
  auto* const begin = static_cast<std::byte*>(receive);
  const Elements elements = elements_of(layout, ranks * times(count, 1));
  Job job{.collective = Collective::all_gather,
          .output = {receive, numbers_in(ranks * times(count, 1), layout, elements.type), elements.type},
          .foreign_type = elements.foreign_type};
  set_part(job, send, send_count, send_type, begin + state.rank() * stride, count, type);
  if (layout.dense) {
    keep_part_apart(job, mine * static_cast<std::size_t>(state.rank()));
    return job;
  }
  job.output.data = job.stage(mine * ranks);
  job.finish = [from = job.out.get(), mine, ranks, begin, stride, number = count, to = held(type)] {
    for (std::size_t r = 0; r < ranks; ++r)
      unpack(from + r * mine, mine, begin + static_cast<MPI_Aint>(r) * stride, number, *to);
  };
  return job;
}

Eligibility AllGatherV::eligibility(const CommState& state) const {
  const Layout* const layout = layout_of(type);
  const auto all = of_ranks(counts, state);
  if (layout == nullptr) return refused(Wrong::type);
  if (all.empty()) return refused(Wrong::counts);
  if (places == nullptr) return refused(Wrong::displacements);
  if (negative(all)) return refused(Wrong::count);
  const std::size_t bytes = sum(all) * layout->bytes;
  const auto rank = static_cast<std::size_t>(state.rank());
  Wrong found = wrong_part(send, send_count, send_type, times(all[rank], layout->bytes));
  if (found == Wrong::none && layout->dense) found = wrong_pair(send, receive, 0, bytes);
  if (found == Wrong::none && all[rank] > 0)
    found = wrong_alias(send, static_cast<std::byte*>(receive) + places[rank] * layout->extent);
  return unless(found, moving(bytes, times(*std::ranges::max_element(all), layout->bytes)));
}

Job AllGatherV::job(const CommState& state) const {
  const Layout& layout = *layout_of(type);
  const auto ranks = static_cast<std::size_t>(state.size()), rank = static_cast<std::size_t>(state.rank());
  auto* const begin = static_cast<std::byte*>(receive);
  const std::size_t total = sum(of_ranks(counts, state));
  const Elements elements = elements_of(layout, total);
  Job job{.collective = Collective::all_gather,
          .output = {receive, numbers_in(total, layout, elements.type), elements.type},
          .has_counts = true,
          .foreign_type = elements.foreign_type};
  bool in_order = layout.dense;
  std::size_t bytes = 0, before = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    in_order = in_order && (counts[r] == 0 || places[r] * layout.extent == static_cast<MPI_Aint>(bytes));
    if (r == rank) before = bytes;
    bytes += times(counts[r], layout.bytes);
    job.counts.push_back(numbers_in(times(counts[r], 1), layout, elements.type));
  }
  set_part(job, send, send_count, send_type, begin + places[rank] * layout.extent, counts[rank], type);
  if (in_order) {
    keep_part_apart(job, before);
    return job;
  }
  job.output.data = job.stage(bytes);
  job.finish = [from = job.out.get(), begin, extent = layout.extent, size = layout.bytes, to = held(type),
                numbers = std::vector<int>(counts, counts + ranks), at = std::vector<int>(places, places + ranks)] {
    const std::byte* next = from;
    for (std::size_t r = 0; r < numbers.size(); ++r) {
      const std::size_t theirs = times(numbers[r], size);
      if (theirs > 0) unpack(next, theirs, begin + at[r] * extent, numbers[r], *to);
      next += theirs;
    }
  };
  return job;
}

Eligibility Broadcast::eligibility(const CommState& state) const {
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  if (count < 0) return refused(Wrong::count);
  if (outside(root, state)) return refused(Wrong::root);
  const std::size_t bytes = times(count, layout->bytes);
  Wrong found = Wrong::none;
  if (data == MPI_IN_PLACE) found = Wrong::in_place;
  if (layout->dense && no_memory(data, bytes)) found = Wrong::buffer;
  return unless(found, moving(bytes, bytes));
}

Job Broadcast::job(const CommState& state) const {
  const Layout& layout = *layout_of(type);
  const std::size_t bytes = times(count, layout.bytes);
  const Elements elements = elements_of(layout, times(count, 1));
  Job job{.collective = Collective::broadcast,
          .output = {data, numbers_in(times(count, 1), layout, elements.type), elements.type},
          .root = root,
          .foreign_type = elements.foreign_type};
  if (layout.dense) return job;
  if (state.rank() == root) {
    job.output.data = const_cast<std::byte*>(job.packed(data, count, type, layout));
  } else {
    job.output.data = job.stage(bytes);
    job.finish = [from = job.out.get(), bytes, to = data, number = count, as = held(type)] {
      unpack(from, bytes, to, number, *as);
    };
  }
  return job;
}

}  // namespace collectives::drop_in
