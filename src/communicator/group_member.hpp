// GroupMember: one collective or message of a Group. A group performs several collectives and messages together.
//
// A group may fuse members: it joins their vectors into one vector, on which it performs one call. A member therefore
// returns its input and its output part by part. In an all-gather, a gather or an all-to-all, the output has one part
// per rank. In a reduce-scatter, a scatter or an all-to-all, the input has one. Every other input or output is one
// part.
//
// The parts of a buffer follow one another, or lie at displacements. The program may instead pass a list of tensors,
// which are then the parts. V-forms of all-to-all, gather and scatter are never fused. They are performed with the
// arguments that the program passed.
//
// A GroupMember keeps the memory of its lists, so that a later member can use the object without an allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "communicator/reused_list.hpp"
#include "core/call.hpp"
#include "core/collective.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

/// Returns whether the input consists of one part per rank.
constexpr bool has_divided_input(Collective collective) noexcept {
  return collective == Collective::reduce_scatter || collective == Collective::scatter ||
         collective == Collective::all_to_all;
}
/// Returns whether the output consists of one part per rank.
constexpr bool has_divided_output(Collective collective) noexcept {
  return collective == Collective::all_gather || collective == Collective::gather ||
         collective == Collective::all_to_all;
}
constexpr bool is_divided(Collective collective) noexcept {
  return has_divided_input(collective) || has_divided_output(collective);
}

class GroupMember {
 public:
  GroupMember() = default;
  GroupMember(const GroupMember&) = delete;  // members refer to one another
  GroupMember& operator=(const GroupMember&) = delete;

  /// Makes this object the member for a call of rank `rank` of `size` ranks. Requires that its arguments have been
  /// checked. Copies the counts and displacements, because the program may reuse its own lists before run().
  void set(const Call& call, Rank rank, int size);
  /// Makes this object the member for a call with a list of tensors. `call`: result of call_of_list().
  void set(const Call& call, std::span<const ConstBuffer> tensors, Rank rank, int size);
  /// Makes this object the member for a send or a receive whose arguments have been checked.
  void set(const MessageCall& call);
  /// Makes this object a member that differs from `other` only in its buffers. Requires that `other` has neither counts
  /// nor a list of tensors, and stays as it is.
  void repeat(const GroupMember& other, const ConstBuffer& input, const Buffer& output) noexcept {
    arguments_ = other.arguments_;
    input_ = input;
    output_ = output;
  }

  /// Returns the arguments of the call except for its buffers. A message has no collective.
  const Call& call() const noexcept { return arguments_->call_; }
  std::string_view name() const noexcept {
    return is_message() ? arguments_->message_ : to_string(arguments_->call_.collective);
  }
  bool is_message() const noexcept { return !arguments_->message_.empty(); }
  /// Returns the buffers that the program has passed. A list of tensors has no buffer on its side.
  const ConstBuffer& input() const noexcept { return input_; }
  const Buffer& output() const noexcept { return output_; }
  /// Returns the buffers that this rank uses.
  Sides sides() const noexcept { return arguments_->sides_; }
  /// Returns whether the parts are tensors of a list, or lie at displacements.
  bool has_scattered_parts() const noexcept {
    return !arguments_->tensors_.empty() || (!call().displacements.empty() && is_fusible());
  }
  /// Returns whether the call can be fused with others. All ranks must know the lengths of all parts.
  bool is_fusible() const noexcept { return !(call().has_counts && has_local_counts(call().collective)); }
  /// Returns the number of elements of all parts together.
  std::size_t count() const noexcept { return arguments_->count_; }
  std::size_t count_of(std::size_t part) const noexcept {
    return call().has_counts ? arguments_->counts_[part] : arguments_->part_count_;
  }
  /// Returns the number of parts of the input, whether or not this rank uses the input.
  std::size_t input_parts() const noexcept { return has_divided_input(call().collective) ? arguments_->ranks_ : 1; }
  std::size_t output_parts() const noexcept { return has_divided_output(call().collective) ? arguments_->ranks_ : 1; }
  inline ConstBuffer input(std::size_t part) const noexcept;
  inline Buffer output(std::size_t part) const noexcept;
  /// Returns whether the parts have different lengths, or lie at displacements of a v-form.
  bool has_unequal_parts() const noexcept { return call().has_counts; }
  /// Returns a hash of the lengths of unequal parts and of their displacements, starting from the hash `seed`.
  std::uint64_t hash_of_parts(std::uint64_t seed) const noexcept;

 private:
  /// Copies the lists of a v-form, and makes the call of this object refer to the copies.
  void set_counts(const Call& call);
  std::size_t first_of(std::size_t part) const noexcept {
    return call().has_counts ? arguments_->firsts_[part] : part * arguments_->part_count_;
  }

  const GroupMember* arguments_ = this;  // member with all arguments except for the buffers
  ConstBuffer input_;
  Buffer output_;

  // Arguments, unless another member has them.
  Call call_;
  Sides sides_;
  std::size_t ranks_ = 0;
  std::size_t count_ = 0;
  std::size_t part_count_ = 0;        // elements of each part, unless the call has counts
  std::vector<ConstBuffer> tensors_;  // tensors of a list; empty: the parts lie in the buffer of the call
  std::vector<std::size_t> counts_;   // elements of each part of a v-form
  std::vector<std::size_t> firsts_;   // first element of each part of a v-form
  std::vector<std::size_t> input_counts_, input_displacements_;  // parts of the input of a v-form of all-to-all
  std::string_view message_;                                     // "send" or "recv"; empty: the member is a collective
};

inline ConstBuffer GroupMember::input(std::size_t part) const noexcept {
  const ConstBuffer& whole = input_;
  if (!has_divided_input(call().collective)) return whole;
  if (!arguments_->tensors_.empty()) return arguments_->tensors_[part];
  const std::size_t first = first_of(part) * size_of(whole.type);
  return {static_cast<const std::byte*>(whole.data) + first, count_of(part), whole.type};
}

inline Buffer GroupMember::output(std::size_t part) const noexcept {
  const Buffer& whole = output_;
  if (!has_divided_output(call().collective)) return whole;
  if (!arguments_->tensors_.empty())
    return {const_cast<void*>(arguments_->tensors_[part].data), arguments_->tensors_[part].count,
            arguments_->tensors_[part].type};
  return {static_cast<std::byte*>(whole.data) + first_of(part) * size_of(whole.type), count_of(part), whole.type};
}

/// Makes a call of the tensors of a list: of the outputs of an all-gather, or of the inputs of a reduce-scatter. Checks
/// the list, and throws Error{invalid_argument}. The call has the in-place address of its other side, so that the
/// checks of a call accept it. `counts` gets the elements of each part, and must outlive the call.
Call call_of_list(const Call& other_side, std::span<const ConstBuffer> tensors, Rank rank, int size,
                  std::vector<std::size_t>& counts);

/// Memory that one member reads or writes.
struct MemberRange {
  std::uintptr_t begin = 0, end = 0;
  std::size_t member = 0;  ///< position in the group, from 0
};
struct MemberRanges {
  std::vector<MemberRange> read, written;
};

/// Throws Error{invalid_argument} if an output of one member overlaps another output, or the input of another member.
/// The text names both positions, counted from 1. Requires that the buffers of each member have been checked.
///
/// A group performs its members in no stated order. In two calls in a row, a buffer may be the output of the first and
/// the input of the second. A group would give that buffer another value. Inputs may be shared, because a group only
/// reads them. The content of `ranges` is replaced.
void check_apart(const ReusedList<GroupMember>& members, Rank rank, MemberRanges& ranges);

}  // namespace collectives
