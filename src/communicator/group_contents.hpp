// GroupContents: the collectives and messages that a program has added to a Group.
#pragma once

#include <vector>

#include "communicator/group_member.hpp"
#include "communicator/group_pack.hpp"
#include "communicator/reused_list.hpp"
#include "point_to_point/message_operation.hpp"

namespace collectives {

struct GroupContents {
  ReusedList<GroupMember> members;  ///< all collectives and messages, in the order in which the program added them
  ReusedList<GroupPack> packs;      ///< the collectives again, as the calls that perform them
  std::vector<CheckedMessage> messages;
  GroupPack* last_pack = nullptr;  ///< pack of the last member; null: the last member is a message, or there is none
  MemberRanges ranges;             ///< of check_apart()

  void clear() noexcept {
    members.clear();
    packs.clear();
    messages.clear();
    last_pack = nullptr;
  }
};

}  // namespace collectives
