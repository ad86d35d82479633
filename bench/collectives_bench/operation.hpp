// Operations that the benchmarks time. These are collectives, their variants with parts of unequal length, and
// point-to-point messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"
#include "collectives/types.hpp"

namespace collectives::bench {

/// Name of an operation. A name with the ending _v has parts of unequal length. In sendrecv, each rank sends to the
/// next one and receives from the one before. In ping_pong, ranks 2k and 2k + 1 send a vector to and fro.
enum class Operation : std::uint8_t {
  all_reduce,
  reduce_scatter,
  reduce_scatter_v,
  all_gather,
  all_gather_v,
  broadcast,
  reduce,
  all_to_all,
  all_to_all_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  scan,
  exclusive_scan,
  sendrecv,
  ping_pong,
  barrier
};

/// All operations, in the order of the table.
inline constexpr Operation kOperations[] = {
    Operation::all_reduce,   Operation::reduce_scatter, Operation::reduce_scatter_v, Operation::all_gather,
    Operation::all_gather_v, Operation::broadcast,      Operation::reduce,           Operation::all_to_all,
    Operation::all_to_all_v, Operation::gather,         Operation::gather_v,         Operation::scatter,
    Operation::scatter_v,    Operation::scan,           Operation::exclusive_scan,   Operation::sendrecv,
    Operation::ping_pong,    Operation::barrier};

std::string_view to_string(Operation) noexcept;

/// Returns the collective whose plan performs the operation. Requires that it is no message.
Collective collective_of(Operation) noexcept;
bool is_message(Operation) noexcept;
/// Returns whether the parts of the vector have unequal lengths.
bool has_counts(Operation) noexcept;
/// Returns whether the op matters.
bool is_reduction(Operation) noexcept;
/// Returns whether the vector has one part per rank, such as the input of reduce_scatter and the output of all_gather.
bool has_parts(Operation) noexcept;
bool has_root(Operation) noexcept;
/// Returns whether input and output may be the same memory.
bool has_in_place(Operation) noexcept;
/// Returns whether a second call on its own result changes nothing.
bool is_repeatable_in_place(Operation) noexcept;
/// Returns whether every rank has the same result.
bool is_equal_on_all_ranks(Operation) noexcept;
/// Returns whether this rank's own part of the vector is its input, or is its output.
bool gathers(Operation) noexcept;
bool scatters(Operation) noexcept;

/// Returns the rank with which `rank` plays ping_pong, or kNoRank if it is left over.
Rank partner_of(Rank rank, int ranks) noexcept;
/// Returns the number of leading ranks whose contributions the result of `rank` reduces.
int reduced_ranks(Operation, Rank rank, int ranks) noexcept;
/// Returns the elements of each part of the vector that `rank` has, in rank order. `count`: mean length of a part. With
/// unequal lengths, a part is a quarter longer or shorter.
std::vector<std::size_t> part_counts(Operation, std::size_t count, Rank rank, int ranks);

}  // namespace collectives::bench
