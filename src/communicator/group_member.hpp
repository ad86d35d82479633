// GroupMember: one collective or message of a Group. A group performs several collectives and messages together.
//
// A member describes its buffers as lists of tensors, because a group may fuse members. To fuse members is to join
// their tensors into one vector, on which the group performs one call. All-to-alls, gathers and scatters are never
// fused. They are performed with the arguments that the program passed.
//
// An all-gather has one output tensor per rank, and a reduce-scatter has one input tensor per rank. Every other input
// or output is one tensor. If this rank does not use an input or output, its list is empty. An example is the input of
// a broadcast on a rank other than the root. Instead of a list of tensors, the program may pass one buffer whose
// adjacent ranges are the tensors.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "core/call.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Copies of the counts and displacements of a call, because the program may reuse its own lists before run().
struct CallLists {
  std::vector<std::size_t> counts, displacements, input_counts, input_displacements;
  explicit CallLists(const Call& call);
  CallLists() = default;
  /// Makes the call refer to these lists.
  void attach_to(Call& call) const noexcept;
};

struct GroupMember {
  /// Arguments of the call, without counts and displacements. If the program passed a list of tensors for the input or
  /// the output, and they are not adjacent in memory, this buffer is null.
  Call call;
  std::vector<ConstBuffer> inputs;  ///< tensors that this rank reads
  std::vector<Buffer> outputs;      ///< tensors that this rank writes
  /// Elements of each part: one number per rank. Undivided vectors have one part.
  std::vector<std::size_t> parts;
  CallLists lists = {};           ///< lists of a call that is not fused, or whose parts have displacements
  std::string_view message = {};  ///< "send" or "recv" of a message, whose call is empty; empty: a collective

  std::size_t count() const noexcept;
};

/// Returns whether the input or the output consists of one part per rank.
constexpr bool is_divided(Collective collective) noexcept {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter;
}

/// Returns whether calls of this collective can be fused.
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
