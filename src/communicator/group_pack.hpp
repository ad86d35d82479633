// GroupPack: performs several collectives of a group as one call. The collectives are the members of the pack. Reason:
// one call on a long vector costs less than many calls on short vectors.
//
// The members of a pack have the same collective, type, op, root, kind of memory and options. Only the option `name`
// may differ. The call works on one vector, in which the members' vectors follow one another. In an all-gather or a
// reduce-scatter, a rank's part of this vector holds that rank's part of each member.
//
// Each rank decides without the other ranks whether it copies. If the tensors of a rank are adjacent in memory, in the
// order of the vector, the call works on them in place. Otherwise the pack copies the inputs into one buffer of the
// ScratchPool, and copies the results to the outputs afterwards.
//
// All ranks must form the same packs. The choice of packs therefore depends only on arguments that are equal on all
// ranks. Four kinds of members are never joined with others:
//
//   a host-memory member longer than pack_limit(), because its copies would take longer than a call
//   a member with a compressor
//   a member in device memory that is not an all-reduce
//   an all-to-all, a gather or a scatter, which are performed with the arguments that the program passed
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
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
  /// Makes a pack of one member. `refused`: the error with which this rank refuses the member's device buffers, or null
  /// (DeviceCalls::place()).
  GroupPack(GroupMember member, const Options& options, std::exception_ptr refused);

  /// Returns whether `member` fits into this pack. `limit`: result of pack_limit().
  bool takes(const GroupMember& member, const Options& options, std::size_t limit) const noexcept;
  void add(GroupMember member, std::string_view name, const std::exception_ptr& refused);
  /// Returns the call that performs all members. Copies the inputs first unless tensors are adjacent in memory. The
  /// call refers to this object. Throws Error{system} if there is no memory for copies.
  Call prepare(const std::shared_ptr<ScratchPool>& pool, Rank rank);
  const Options& options() const noexcept { return options_; }
  /// Returns the error of DeviceCalls::place() for a member, or null.
  const std::exception_ptr& refused() const noexcept { return refused_; }
  /// Copies the results to the outputs of the members, after the call has ended.
  void finish();

 private:
  std::size_t count() const noexcept;
  /// Calls visit(buffer) for the tensors of one side, in the order of the vector.
  template <class Visit>
  void for_each_input(Visit&& visit) const;
  template <class Visit>
  void for_each_output(Visit&& visit) const;
  /// Sets the buffers of the call to the tensors themselves. Returns false if they are not adjacent.
  bool use_in_place(Call& call) const;
  /// Sets the buffers of the call to scratch memory, and copies the inputs. Throws Error{system} if there is no memory.
  void copy_inputs(Call& call, Rank rank);

  Call call_;  // arguments that all members share
  Options options_;
  std::string backend_, name_;  // storage of texts to which options_ refers
  std::vector<GroupMember> members_;
  std::string names_;                 // names of all members
  bool any_named_ = false;            // whether any member has a name
  std::exception_ptr refused_;        // error that place() returned for a member; null: none
  std::vector<std::size_t> lengths_;  // lengths of all members
  std::vector<std::size_t> parts_;    // elements of each part of the vector
  std::vector<Tensor> tensors_;       // members in device memory
  std::shared_ptr<ScratchPool> pool_;
  SharedMemory scratch_;                // copies of the members; empty: the call works in place
  const std::byte* results_ = nullptr;  // first result in scratch_
};

/// Returns the largest number of bytes of a member that shares a call with others. `hosts`: number of hosts.
constexpr std::size_t pack_limit(std::size_t hosts) noexcept {
  return hosts == 1 ? std::size_t{64} << 10 : std::size_t{1} << 20;
}

}  // namespace collectives
