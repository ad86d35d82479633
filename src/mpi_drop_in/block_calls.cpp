// MPI_Alltoall, MPI_Gather, MPI_Scatter and their v-forms in the drop-in. The drop-in is a library that an MPI program
// preloads. It performs collectives of the program in place of MPI. In these calls of MPI, a buffer consists of one
// block for each rank.
//
// A datatype of MPI may have gaps between its data. If the datatype of a buffer has no gaps, the call works directly on
// the buffer, with the displacements of the program. Otherwise the drop-in packs the blocks of an input into other
// memory before the call, and unpacks the blocks of an output after the call.
//
// In a v-form such as MPI_Alltoallv, no rank knows the lengths and types of all blocks. All ranks therefore send bytes.
// The library compares the lengths of each pair of ranks, and reports a difference as an error.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mpi_drop_in/arguments.hpp"
#include "mpi_drop_in/calls.hpp"

namespace collectives::drop_in {
namespace {

/// Elements of one block, as an MPI call describes them.
struct Block {
  void* data;
  int count;
  MPI_Datatype type;
};

/// Blocks of a buffer, one for each rank, as an MPI call describes them.
struct Blocks {
  const void* begin;
  MPI_Datatype type;
  const Layout& layout;
  std::size_t ranks;
  int each = 0;                 ///< Number of elements of each block, if `counts` is null.
  const int* counts = nullptr;  ///< Numbers of elements of the blocks of a v-form.
  const int* places = nullptr;  ///< Positions of the blocks of a v-form.

  int count(std::size_t rank) const { return counts == nullptr ? each : counts[rank]; }
  std::size_t bytes(std::size_t rank) const { return times(count(rank), layout.bytes); }
  /// Returns the bytes between `begin` and the block. The number is negative if the program's displacement is.
  MPI_Aint offset(std::size_t rank) const {
    return (counts == nullptr ? static_cast<MPI_Aint>(rank) * each : places[rank]) * layout.extent;
  }
  std::size_t all_bytes() const {
    std::size_t sum = 0;
    for (std::size_t r = 0; r < ranks; ++r) sum += bytes(r);
    return sum;
  }
  void* at(MPI_Aint offset) const {
    return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(begin) + static_cast<std::uintptr_t>(offset));
  }
  Block operator[](std::size_t rank) const { return {at(offset(rank)), count(rank), type}; }
};

/// Blocks of a buffer of the library, in bytes. The lists are empty if all blocks have one length.
struct Placed {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::vector<std::size_t> counts = {}, displacements = {};
};

/// Returns blocks that the library uses in the program's memory.
Placed in_memory(const Blocks& blocks) {
  if (blocks.counts == nullptr) return {const_cast<void*>(blocks.begin), blocks.all_bytes()};
  MPI_Aint first = std::numeric_limits<MPI_Aint>::max(), end = std::numeric_limits<MPI_Aint>::min();
  for (std::size_t r = 0; r < blocks.ranks; ++r) {
    if (blocks.count(r) == 0) continue;
    first = std::min(first, blocks.offset(r));
    end = std::max(end, blocks.offset(r) + static_cast<MPI_Aint>(blocks.bytes(r)));
  }
  if (end < first) first = end = 0;
  Placed placed{blocks.at(first), static_cast<std::size_t>(end - first)};
  for (std::size_t r = 0; r < blocks.ranks; ++r) {
    placed.counts.push_back(blocks.bytes(r));
    placed.displacements.push_back(blocks.count(r) == 0 ? 0 : static_cast<std::size_t>(blocks.offset(r) - first));
  }
  return placed;
}

/// Returns blocks one after another in memory of the job.
Placed one_after_another(std::byte* data, const Blocks& blocks) {
  Placed placed{data, blocks.all_bytes()};
  for (std::size_t r = 0; blocks.counts != nullptr && r < blocks.ranks; ++r) placed.counts.push_back(blocks.bytes(r));
  return placed;
}

/// Returns the blocks of an input, packed if needed.
Placed input_of(Job& job, const Blocks& blocks) {
  if (blocks.layout.dense) return in_memory(blocks);
  job.in = std::make_unique_for_overwrite<std::byte[]>(blocks.all_bytes());
  std::byte* next = job.in.get();
  for (std::size_t r = 0; r < blocks.ranks; next += blocks.bytes(r++))
    pack(blocks[r].data, blocks[r].count, blocks.type, next, blocks.bytes(r));
  return one_after_another(job.in.get(), blocks);
}

/// Sets `finish` of the job, which unpacks blocks from `from`.
void unpack_at_end(Job& job, const std::byte* from, std::vector<Block> blocks, std::size_t element_bytes,
                   MPI_Datatype type) {
  job.finish = [from, blocks = std::move(blocks), element_bytes, to = held(type)] {
    const std::byte* next = from;
    for (const Block& block : blocks) {
      const std::size_t bytes = times(block.count, element_bytes);
      if (bytes > 0) unpack(next, bytes, block.data, block.count, *to);
      next += bytes;
    }
  };
}

/// Returns the blocks of an output, which the job unpacks at its end if needed.
Placed output_of(Job& job, const Blocks& blocks) {
  if (blocks.layout.dense) return in_memory(blocks);
  std::vector<Block> all;
  for (std::size_t r = 0; r < blocks.ranks; ++r) all.push_back(blocks[r]);
  const Placed placed = one_after_another(job.stage(blocks.all_bytes()), blocks);
  unpack_at_end(job, job.out.get(), std::move(all), blocks.layout.bytes, blocks.type);
  return placed;
}

/// Throws if an element is so long that MPI cannot pack it. Ranks cannot forward a v-form for this reason, because
/// other ranks do not know of it.
void check_packable(const Layout& layout, std::size_t bytes) {
  if (!layout.dense && layout.bytes > kMaxPackedBytes && bytes > 0)
    throw std::runtime_error("an element of the datatype has more than 2 GiB");
}

ConstBuffer read_only(const Placed& placed, DataType type) { return {placed.data, placed.bytes / size_of(type), type}; }
Buffer writable(const Placed& placed, DataType type) { return {placed.data, placed.bytes / size_of(type), type}; }

/// Sets the input of the job to this rank's block.
void read_block(Job& job, const Block& block, DataType type) {
  const Layout& layout = *layout_of(block.type);
  const std::size_t bytes = times(block.count, layout.bytes);
  check_packable(layout, bytes);
  job.input = {job.packed(block.data, block.count, block.type, layout), bytes / size_of(type), type};
}

/// Sets the output of the job to this rank's block.
void write_block(Job& job, const Block& block, DataType type) {
  const Layout& layout = *layout_of(block.type);
  const std::size_t bytes = times(block.count, layout.bytes);
  check_packable(layout, bytes);
  job.output = {block.data, bytes / size_of(type), type};
  if (layout.dense || bytes == 0) return;
  job.output.data = job.stage(bytes);
  unpack_at_end(job, job.out.get(), {block}, layout.bytes, block.type);
}

Job job_from(Collective collective, Rank root, bool has_counts, const Elements& elements) {
  return {.collective = collective, .root = root, .has_counts = has_counts, .foreign_type = elements.foreign_type};
}

/// Returns the job of a gather. `mine` is this rank's block. `all` are the blocks of the root, or null at other ranks.
/// `in_place`: whether `mine` already lies in `all`.
Job gathering(Job job, const Block& mine, const Blocks* all, bool in_place, DataType type) {
  read_block(job, mine, type);
  job.output.type = type;
  if (all == nullptr) return job;
  check_packable(all->layout, all->all_bytes());
  Placed placed = output_of(job, *all);
  job.output = writable(placed, type);
  job.counts = std::move(placed.counts);
  job.displacements = std::move(placed.displacements);
  if (!in_place) job.keep_apart();
  return job;
}

/// Returns the job of a scatter. `mine` is this rank's block. `all` are the blocks of the root, or null at other ranks.
/// `in_place`: whether the root keeps its block where it is.
Job scattering(Job job, const Block& mine, const Blocks* all, bool in_place, DataType type) {
  if (!in_place) write_block(job, mine, type);
  job.input.type = type;
  if (all == nullptr) return job;
  check_packable(all->layout, all->all_bytes());
  Placed placed = input_of(job, *all);
  job.input = read_only(placed, type);
  if (in_place) {
    const std::size_t bytes = times(mine.count, all->layout.bytes);
    job.output = {all->layout.dense ? mine.data : job.stage(bytes), bytes / size_of(type), type};
  }
  job.counts = std::move(placed.counts);
  job.displacements = std::move(placed.displacements);
  if (!in_place) job.keep_apart();
  return job;
}

/// Returns the job of an all-to-all from `in` to `out`.
Job exchanging(Job job, const Blocks& in, const Blocks& out, bool in_place, DataType type) {
  check_packable(in.layout, in.all_bytes());
  check_packable(out.layout, out.all_bytes());
  Placed sent = input_of(job, in), received = output_of(job, out);
  job.input = read_only(sent, type);
  job.output = writable(received, type);
  job.input_counts = std::move(sent.counts);
  job.input_displacements = std::move(sent.displacements);
  job.counts = std::move(received.counts);
  job.displacements = std::move(received.displacements);
  if (!in_place) job.keep_apart();
  return job;
}

/// Returns what is wrong with the lists of a v-form.
Wrong wrong_lists(std::span<const int> counts, const int* places, Wrong no_counts, Wrong no_places, Wrong below_zero) {
  if (counts.empty()) return no_counts;
  if (places == nullptr) return no_places;
  return negative(counts) ? below_zero : Wrong::none;
}

/// Returns what is wrong with a receive buffer of `bytes` bytes.
Wrong wrong_output(void* receive, const Layout& layout, std::size_t bytes) {
  if (receive == MPI_IN_PLACE) return Wrong::in_place;
  return layout.dense && no_memory(receive, bytes) ? Wrong::receive_buffer : Wrong::none;
}
/// Returns what is wrong with a send buffer of `bytes` bytes.
Wrong wrong_input(const void* send, const Layout& layout, std::size_t bytes) {
  if (send == MPI_IN_PLACE) return Wrong::in_place;
  return layout.dense ? wrong_send(send, bytes) : Wrong::none;
}

std::size_t ranks_of(const CommState& state) { return static_cast<std::size_t>(state.size()); }
std::size_t rank_of(const CommState& state) { return static_cast<std::size_t>(state.rank()); }

template <class... Checks>
Wrong first_wrong(Wrong first, Checks&&... checks) {
  ((first = first != Wrong::none ? first : checks()), ...);
  return first;
}

}  // namespace

// ---- all-to-all ----

Eligibility AllToAll::eligibility(const CommState& state) const {
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  if (count < 0) return refused(Wrong::count);
  const std::size_t part = times(count, layout->bytes), bytes = part * ranks_of(state);
  return unless(first_wrong(
                    wrong_part(send, send_count, send_type, part),
                    [&] { return wrong_output(receive, *layout, bytes); }, [&] { return wrong_alias(send, receive); }),
                moving(bytes, part));
}

Job AllToAll::job(const CommState& state) const {
  const bool in_place = send == MPI_IN_PLACE;
  const Blocks out{receive, type, *layout_of(type), ranks_of(state), count};
  const Blocks in{in_place ? receive : send, in_place ? type : send_type, in_place ? out.layout : *layout_of(send_type),
                  out.ranks, in_place ? count : send_count};
  const Elements elements = elements_of(out.layout, times(count, 1));
  Job job = job_from(Collective::all_to_all, 0, false, elements);
  compare_own_part(job, elements_of(in.layout, times(in.each, 1)), elements);
  return exchanging(std::move(job), in, out, in_place, elements.type);
}

Eligibility AllToAllV::eligibility(const CommState& state) const {
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  const auto received = of_ranks(counts, state), sent = of_ranks(send_counts, state);
  const Wrong lists = wrong_lists(received, places, Wrong::counts, Wrong::displacements, Wrong::count);
  if (lists != Wrong::none) return refused(lists);
  const std::size_t bytes = sum(received) * layout->bytes, mine = times(received[rank_of(state)], layout->bytes);
  const Wrong output = wrong_output(receive, *layout, bytes);
  if (send == MPI_IN_PLACE) return unless(output, moving_locally(bytes));
  const Layout* const send_layout = layout_of(send_type);
  if (send_layout == nullptr) return refused(Wrong::send_type);
  const Wrong found = first_wrong(
      output, [&] { return wrong_lists(sent, send_places, Wrong::send_counts, Wrong::send_counts, Wrong::send_count); },
      [&] { return wrong_input(send, *send_layout, sum(sent) * send_layout->bytes); },
      [&] { return wrong_part(send, sent[rank_of(state)], send_type, mine); },
      [&] { return bytes > 0 ? wrong_alias(send, receive) : Wrong::none; });
  return unless(found, moving_locally(bytes));
}

Job AllToAllV::job(const CommState& state) const {
  const Blocks out{receive, type, *layout_of(type), ranks_of(state), 0, counts, places};
  Job job = job_from(Collective::all_to_all, 0, true, {});
  if (send == MPI_IN_PLACE) return exchanging(std::move(job), out, out, true, DataType::u8);
  const Blocks in{send, send_type, *layout_of(send_type), out.ranks, 0, send_counts, send_places};
  return exchanging(std::move(job), in, out, false, DataType::u8);
}

// ---- gather ----

Eligibility Gather::eligibility(const CommState& state) const {
  if (outside(root, state)) return refused(Wrong::root);
  if (state.rank() != root) {
    if (send == MPI_IN_PLACE) return refused(Wrong::in_place);
    const Layout* const layout = layout_of(send_type);
    if (layout == nullptr) return refused(Wrong::send_type);
    if (send_count < 0) return refused(Wrong::send_count);
    const std::size_t part = times(send_count, layout->bytes);
    return unless(wrong_input(send, *layout, part), moving(part * ranks_of(state), part));
  }
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  if (count < 0) return refused(Wrong::count);
  const Blocks out{receive, type, *layout, ranks_of(state), count};
  const std::size_t part = times(count, layout->bytes);
  return unless(first_wrong(
                    wrong_part(send, send_count, send_type, part),
                    [&] { return wrong_output(receive, *layout, out.all_bytes()); },
                    [&] { return wrong_alias(send, out[rank_of(state)].data); }),
                moving(out.all_bytes(), part));
}

Job Gather::job(const CommState& state) const {
  const Block sent{const_cast<void*>(send), send_count, send_type};
  if (state.rank() != root) {
    const Elements elements = elements_of(*layout_of(send_type), times(send_count, 1));
    return gathering(job_from(Collective::gather, root, false, elements), sent, nullptr, false, elements.type);
  }
  const Blocks out{receive, type, *layout_of(type), ranks_of(state), count};
  const Elements elements = elements_of(out.layout, times(count, 1));
  Job job = job_from(Collective::gather, root, false, elements);
  if (send == MPI_IN_PLACE) return gathering(std::move(job), out[rank_of(state)], &out, true, elements.type);
  compare_own_part(job, elements_of(*layout_of(send_type), times(send_count, 1)), elements);
  return gathering(std::move(job), sent, &out, false, elements.type);
}

Eligibility GatherV::eligibility(const CommState& state) const {
  if (outside(root, state)) return refused(Wrong::root);
  if (state.rank() != root) {
    if (send == MPI_IN_PLACE) return refused(Wrong::in_place);
    const Layout* const layout = layout_of(send_type);
    if (layout == nullptr) return refused(Wrong::send_type);
    if (send_count < 0) return refused(Wrong::send_count);
    const std::size_t part = times(send_count, layout->bytes);
    return unless(wrong_input(send, *layout, part), moving_locally(part));
  }
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  const Wrong lists = wrong_lists(of_ranks(counts, state), places, Wrong::counts, Wrong::displacements, Wrong::count);
  if (lists != Wrong::none) return refused(lists);
  const Blocks out{receive, type, *layout, ranks_of(state), 0, counts, places};
  const std::size_t part = out.bytes(rank_of(state));
  return unless(first_wrong(
                    wrong_part(send, send_count, send_type, part),
                    [&] { return wrong_output(receive, *layout, out.all_bytes()); },
                    [&] { return part > 0 ? wrong_alias(send, out[rank_of(state)].data) : Wrong::none; }),
                moving_locally(out.all_bytes()));
}

Job GatherV::job(const CommState& state) const {
  const Block sent{const_cast<void*>(send), send_count, send_type};
  Job job = job_from(Collective::gather, root, true, {});
  if (state.rank() != root) return gathering(std::move(job), sent, nullptr, false, DataType::u8);
  const Blocks out{receive, type, *layout_of(type), ranks_of(state), 0, counts, places};
  const bool in_place = send == MPI_IN_PLACE;
  return gathering(std::move(job), in_place ? out[rank_of(state)] : sent, &out, in_place, DataType::u8);
}

// ---- scatter ----

namespace {

/// Returns what is wrong with the block that a rank receives, if it has to have `bytes` bytes.
Wrong wrong_received(void* receive, int count, MPI_Datatype type, std::size_t bytes) {
  if (receive == MPI_IN_PLACE) return Wrong::none;
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return Wrong::type;
  if (count < 0) return Wrong::count;
  if (times(count, layout->bytes) != bytes) return Wrong::part;
  return layout->dense && no_memory(receive, bytes) ? Wrong::receive_buffer : Wrong::none;
}

/// Returns the eligibility of a scatter on a rank that is not the root. `whole` returns it for a block of some bytes.
template <class Whole>
Eligibility received_elsewhere(void* receive, int count, MPI_Datatype type, Whole&& whole) {
  if (receive == MPI_IN_PLACE) return refused(Wrong::in_place);
  const Layout* const layout = layout_of(type);
  if (layout == nullptr) return refused(Wrong::type);
  if (count < 0) return refused(Wrong::count);
  const std::size_t part = times(count, layout->bytes);
  return unless(wrong_output(receive, *layout, part), whole(part));
}

}  // namespace

Eligibility Scatter::eligibility(const CommState& state) const {
  const auto whole = [&](std::size_t part) { return moving(part * ranks_of(state), part); };
  if (outside(root, state)) return refused(Wrong::root);
  if (state.rank() != root) return received_elsewhere(receive, count, type, whole);
  const Layout* const layout = layout_of(send_type);
  if (layout == nullptr) return refused(Wrong::send_type);
  if (send_count < 0) return refused(Wrong::send_count);
  const Blocks in{send, send_type, *layout, ranks_of(state), send_count};
  const std::size_t part = times(send_count, layout->bytes);
  return unless(
      first_wrong(
          wrong_input(send, *layout, in.all_bytes()), [&] { return wrong_received(receive, count, type, part); },
          [&] { return wrong_alias(in[rank_of(state)].data, receive); }),
      whole(part));
}

Job Scatter::job(const CommState& state) const {
  const Block mine{receive, count, type};
  if (state.rank() != root) {
    const Elements elements = elements_of(*layout_of(type), times(count, 1));
    return scattering(job_from(Collective::scatter, root, false, elements), mine, nullptr, false, elements.type);
  }
  const Blocks in{send, send_type, *layout_of(send_type), ranks_of(state), send_count};
  const Elements elements = elements_of(in.layout, times(send_count, 1));
  Job job = job_from(Collective::scatter, root, false, elements);
  if (receive == MPI_IN_PLACE) return scattering(std::move(job), in[rank_of(state)], &in, true, elements.type);
  compare_own_part(job, elements_of(*layout_of(type), times(count, 1)), elements);
  return scattering(std::move(job), mine, &in, false, elements.type);
}

Eligibility ScatterV::eligibility(const CommState& state) const {
  if (outside(root, state)) return refused(Wrong::root);
  if (state.rank() != root) return received_elsewhere(receive, count, type, moving_locally);
  const Layout* const layout = layout_of(send_type);
  if (layout == nullptr) return refused(Wrong::send_type);
  const Wrong lists =
      wrong_lists(of_ranks(send_counts, state), send_places, Wrong::send_counts, Wrong::send_counts, Wrong::send_count);
  if (lists != Wrong::none) return refused(lists);
  const Blocks in{send, send_type, *layout, ranks_of(state), 0, send_counts, send_places};
  const std::size_t part = in.bytes(rank_of(state));
  return unless(
      first_wrong(
          wrong_input(send, *layout, in.all_bytes()), [&] { return wrong_received(receive, count, type, part); },
          [&] { return part > 0 ? wrong_alias(in[rank_of(state)].data, receive) : Wrong::none; }),
      moving_locally(in.all_bytes()));
}

Job ScatterV::job(const CommState& state) const {
  const Block mine{receive, count, type};
  Job job = job_from(Collective::scatter, root, true, {});
  if (state.rank() != root) return scattering(std::move(job), mine, nullptr, false, DataType::u8);
  const Blocks in{send, send_type, *layout_of(send_type), ranks_of(state), 0, send_counts, send_places};
  const bool in_place = receive == MPI_IN_PLACE;
  return scattering(std::move(job), in_place ? in[rank_of(state)] : mine, &in, in_place, DataType::u8);
}

}  // namespace collectives::drop_in
