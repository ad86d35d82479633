// Implementation of Communicator::create_group(), which makes a new communicator of the ranks in a list.
//
// Only the listed ranks call the function, as in MPI_Comm_create_group. To connect, they exchange texts, as the ranks
// of every new communicator do. MemberExchange carries these texts over the connections of the old communicator, which
// is the parent of the new one. Options that the program does not set have the values of the parent.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/subset.hpp"
#include "collectives/error.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/inherited_options.hpp"
#include "communicator/member_exchange.hpp"
#include "communicator/one_call.hpp"

namespace collectives {
namespace {

/// Throws Error{invalid_argument} if `ranks` is no list of different ranks that contains `self`.
void check_group_list(std::span<const Rank> ranks, Rank self, int size) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("create_group: {}", why), self, kNoRank, "create_group");
  };
  std::vector<bool> listed(static_cast<std::size_t>(size));
  for (const Rank rank : ranks) {
    if (rank < 0 || rank >= size) refuse(fmt::format("{} is not a rank of 0 to {}", rank, size - 1));
    if (listed[static_cast<std::size_t>(rank)]) refuse(fmt::format("rank {} is listed twice", rank));
    listed[static_cast<std::size_t>(rank)] = true;
  }
  if (!listed[static_cast<std::size_t>(self)]) refuse(fmt::format("rank {}, the caller, is not in the list", self));
}

}  // namespace

Communicator Communicator::create_group(std::span<const Rank> ranks, std::string_view name,
                                        const CommunicatorOptions& options) {
  impl_->check_process("create_group");
  check_group_list(ranks, rank(), size());
  CommunicatorResources& parent = impl_->resources;
  const OneCall::Entered entered(parent.creations.one_call, rank(), "create_group");
  MemberExchange members(
      *parent.view, *parent.context.arena, *parent.failure_detector, [this] { return impl_->progress_thread_.guard(); },
      {ranks.begin(), ranks.end()}, name, parent.creations);
  SubsetBootstrap bootstrap(
      "create_group", rank(), {ranks.begin(), ranks.end()}, std::numeric_limits<int>::max(),
      [&](std::string_view text, Deadline deadline) { return members.all_gather(text, deadline); }, parent.parent_info,
      [&] { members.check(); });
  const CommunicatorOptions inherited = inherited_options(parent, options);
  const auto make = [&] {
    return Communicator(std::make_unique<Impl>(bootstrap, inherited, nullptr, Impl::Visibility::visible));
  };
  const std::shared_ptr<Device>& device = parent.context.device;
  std::optional<Communicator> made;
  try {
    // The new communicator uses the GPU of its parent, even if another GPU is the current one of this thread.
    if (device == nullptr)
      made = make();
    else
      device->while_current([&] { made = make(); });
  } catch (const Error& error) {
    // A member whose call has failed closes its connections and its arena. The others then find it lost, or cannot open
    // its arena, although it runs.
    if (error.code() == Errc::peer_lost || error.code() == Errc::system) members.look_for_cause();
    if (error.code() == Errc::timeout) members.check(true);
    throw Error(error.code(), error.what(), error.rank(), error.peer(), "create_group");
  }
  members.complete();
  return *std::move(made);
}

}  // namespace collectives
