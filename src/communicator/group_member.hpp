// GroupMember: one collective or message of a Group, with its buffers as lists of tensors.
//
// All-to-alls, gathers and scatters are not fused with other members. Such a member has the call as it was made.
//
// An all-gather has one tensor for the output of each rank's part, and a reduce-scatter one for the input of each part.
// The other sides of all collectives have one tensor, or none if this rank does not use them. A caller may pass the
// tensors of a list one by one. It may also pass one buffer, of which the tensors are adjacent ranges.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/call.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Copy of the lists of a call.
struct CallLists {
  std::vector<std::size_t> counts, displacements, input_counts, input_displacements;
  explicit CallLists(const Call& call);
  CallLists() = default;
  /// Makes the call refer to these lists.
  void attach_to(Call& call) const noexcept;
};

struct GroupMember {
  /// Arguments without lists. If the tensors of a list are not adjacent, the buffer that stands for the list has no
  /// address.
  Call call;
  std::vector<ConstBuffer> inputs;  ///< tensors that this rank reads
  std::vector<Buffer> outputs;      ///< tensors that this rank writes
  /// Elements of each part: one number per rank. Undivided vectors have one part.
  std::vector<std::size_t> parts;
  CallLists lists = {};           ///< lists of a call that is not fused
  std::string_view message = {};  ///< "send" or "recv" of a message, whose call is empty; empty: a collective

  std::size_t count() const noexcept;
};

/// Returns whether ranks have parts of the input or of the output.
constexpr bool is_divided(Collective collective) noexcept {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter;
}

/// Returns whether calls of this collective can be fused into one.
constexpr bool is_fusible(Collective collective) noexcept {
  return collective != Collective::all_to_all && collective != Collective::gather && collective != Collective::scatter;
}

/// Returns the member for a call whose arguments have been checked.
GroupMember member_of(const Call& call, Rank rank, int size);

/// Returns the member for a send or a receive whose arguments have been checked.
GroupMember member_of(const MessageCall& call);

/// Makes a call of the tensors of a list: of the outputs of an all-gather, or of the inputs of a reduce-scatter. Checks
/// the list, and throws Error{invalid_argument}. The call has the in-place address of its other side, so that the
/// checks of a call accept it. `counts` gets the elements of each part, and must outlive the call.
Call call_of_list(const Call& other_side, std::span<const ConstBuffer> tensors, Rank rank, int size,
                  std::vector<std::size_t>& counts);

/// Returns the address of the first of these buffers if they are adjacent in memory, in their order. Returns null if
/// they are not, or if they have no elements.
const std::byte* adjacent(std::span<const ConstBuffer> buffers) noexcept;

/// Throws Error{invalid_argument} if an output of one member overlaps another output, or the input of another member.
/// The text names both positions, counted from 1. Requires that the buffers of each member have been checked.
///
/// A group performs its members in no stated order. In two calls in a row, a buffer may be the output of the first and
/// the input of the second. A group would give that buffer another value. Inputs may be shared, because a group only
/// reads them.
void check_apart(std::span<const GroupMember> members, Rank rank);

}  // namespace collectives
