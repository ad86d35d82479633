// GroupPack: performs several collectives of a group as one call. The collectives are the members of the pack. Reason:
// one call on a long vector costs less than many calls on short vectors. A pack that does not fuse its members performs
// one call for each. They differ only in addresses, so they have one plan.
//
// The members of a pack have the same collective, type, op, root, kind of memory and options. Only the option `name`
// may differ. The call works on one vector, in which the members' vectors follow one another. If the collective divides
// the vector, a rank's part of it holds that rank's part of each member.
//
// Each rank decides without the other ranks whether it copies. If the tensors of a rank are adjacent in memory, in the
// order of the vector, the call works on them in place. Otherwise the pack copies the inputs into one buffer of the
// ScratchPool, and copies the results to the outputs afterwards.
//
// All ranks must form the same packs. The choice of packs therefore depends only on arguments that are equal on all
// ranks. Four kinds of members are never fused:
//
//   a host-memory member longer than pack_limit(), because its copies would take longer than a call
//   a member with a compressor
//   a member in device memory that is not an all-reduce
//   a v-form of all-to-all, gather or scatter, which is performed with the arguments that the program passed
//
// A GroupPack keeps the memory of its lists, so that a later pack can use the object without an allocation.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.hpp"
#include "communicator/group_member.hpp"
#include "communicator/scratch_pool.hpp"
#include "core/call.hpp"

namespace collectives {

class GroupPack {
 public:
  GroupPack() = default;
  GroupPack(const GroupPack&) = delete;  // options_ refers to texts of this object
  GroupPack& operator=(const GroupPack&) = delete;

  /// Makes this object a pack of one member. `limit`: result of pack_limit(). `refused`: the error with which this rank
  /// refuses the member's device buffers, or null (DeviceCalls::place()).
  void begin(const GroupMember& member, const Options& options, std::size_t limit, std::exception_ptr refused);

  /// Returns whether a member with these options can be fused with those of this pack. `limit`: result of pack_limit().
  bool takes(const GroupMember& member, const Options& options, std::size_t limit) const noexcept;
  /// Returns whether the last member has the arguments of this call, except for addresses, and these options. The call
  /// then has the plan of that member.
  bool repeats(const Call& call, const Options& options) const noexcept;
  /// Adds a member for which takes() has returned true. It must stay in place until finish().
  void add(const GroupMember& member, std::string_view name, const std::exception_ptr& refused);
  /// Adds a member whose call repeats the last one. Requires that it is in host memory.
  void add_repeated(const GroupMember& member) { members_.push_back(&member); }

  /// Returns the number of calls that perform the members: one if they are fused, else one for each member.
  std::size_t calls() const noexcept { return fuses_ ? 1 : members_.size(); }
  /// Returns the first call. Copies the inputs first if members are fused and their tensors are not adjacent in memory.
  /// The call refers to this object. Throws Error{system} if there is no memory for copies.
  Call& prepare(ScratchPool& pool, Rank rank);
  /// Returns the call of a member after the first one, which repeats the first call. Requires an earlier prepare().
  Call& repeated(std::size_t member) noexcept;
  const GroupMember& first() const noexcept { return *members_.front(); }
  const GroupMember& last() const noexcept { return *members_.back(); }
  const Options& options() const noexcept { return options_; }
  /// Returns the error of DeviceCalls::place() for a member, or null.
  const std::exception_ptr& refused() const noexcept { return refused_; }
  /// Returns whether all buffers are in host memory and the calls have no compressor.
  bool is_plain() const noexcept;
  /// Copies the results to the outputs of the members, after the call has ended.
  void finish(ScratchPool& pool);

 private:
  /// Returns the members that the first call performs.
  std::span<const GroupMember* const> fused() const noexcept;
  /// Returns the number of their elements.
  std::size_t count() const noexcept;
  void append_name(std::string_view name);
  /// Calls visit(buffer) for the tensors of one side, in the order of the vector, until it returns false. Returns
  /// whether it has always returned true.
  template <class Visit>
  bool for_each_input(Visit&& visit) const;
  template <class Visit>
  bool for_each_output(Visit&& visit) const;
  /// Stores the lengths of the members and of the parts, and sets those of the call.
  void count_parts();
  /// Sets the buffers of the call to the tensors themselves. Returns false if they are not adjacent.
  bool use_in_place();
  /// Sets the buffers of the call to scratch memory, and copies the inputs. Throws Error{system} if there is no memory.
  void copy_inputs(ScratchPool& pool, Rank rank);

  std::vector<const GroupMember*> members_;
  bool fuses_ = false;  // whether one call performs all members
  Call call_;           // the last call that prepare() or repeated() has returned
  Options options_;
  std::string backend_, name_;          // storage of texts to which options_ refers
  std::string names_;                   // names of all members
  bool any_named_ = false;              // whether any member has a name
  std::exception_ptr refused_;          // error that place() returned for a member; null: none
  std::vector<std::size_t> lengths_;    // lengths of all members
  std::vector<std::size_t> parts_;      // elements of each part of the vector
  std::vector<Tensor> tensors_;         // members in device memory
  SharedMemory scratch_;                // copies of the members; empty: the call works in place
  const std::byte* results_ = nullptr;  // first result in scratch_
};

/// Returns the largest number of bytes of a member that shares a call with others. `hosts`: number of hosts. Above it,
/// the copies of a member take longer than a call. On one host, two ranks perform a call on short vectors in 0.15 us.
/// The limits on one host are the largest sizes at which a group of eight calls took no longer than the calls one by one
/// (`collectives_bench guidelines --guidelines group`, 2 ranks).
constexpr std::size_t pack_limit(Collective collective, std::size_t hosts) noexcept {
  if (hosts > 1) return std::size_t{1} << 20;
  if (collective == Collective::all_reduce) return std::size_t{64} << 10;
  return reduces(collective) ? 1024 : 256;
}

}  // namespace collectives
