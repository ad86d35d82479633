// Bootstrap for a subset of a group of ranks. A bootstrap lets ranks exchange bytes. In split(), for example, the ranks
// of one color are a subset of the communicator's ranks. In each exchange of a subset's bootstrap, all ranks of the
// group exchange bytes.
//
// Ranks that are in no subset also take part in every exchange. From the result, each rank keeps only the contributions
// of its own subset. All ranks of the group make equally many exchanges.
#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/bootstrap.hpp"

namespace collectives {

class SubsetBootstrap final : public Bootstrap {
 public:
  /// Exchange of the group: takes the bytes of this rank and returns the bytes of all ranks.
  using Exchange = std::function<std::vector<std::string>(std::string_view mine, Deadline)>;

  /// Properties of this rank that the bootstrap of the group has returned.
  struct ParentInfo {
    std::string host, domain;
    WireFactory wires;
  };

  /// Makes a bootstrap for a subset. The list `members` holds the subset's ranks in the group, in the order of their
  /// new ranks; `self` is this rank in the group. All ranks of the group make `exchanges` exchanges.
  /// `check`: function of check_peers(); may be empty.
  SubsetBootstrap(std::string_view name, Rank self, std::vector<Rank> members, int exchanges, Exchange exchange,
                  ParentInfo parent, std::function<void()> check = {})
      : name_(name),
        self_(self),
        members_(std::move(members)),
        exchanges_left_(exchanges),
        exchange_(std::move(exchange)),
        parent_(std::move(parent)),
        check_(std::move(check)) {}

  std::string_view name() const noexcept override { return name_; }
  Rank rank() const noexcept override {
    return static_cast<Rank>(std::find(members_.begin(), members_.end(), self_) - members_.begin());
  }
  int size() const noexcept override { return static_cast<int>(members_.size()); }

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) override {
    if (exchanges_left_-- == 0) throw std::logic_error("more exchanges than all take part in");
    const std::vector<std::string> all = exchange_(mine, deadline);
    std::vector<std::string> ours;
    for (const Rank member : members_) ours.push_back(all[static_cast<std::size_t>(member)]);
    return ours;
  }

  void check_peers() override {
    if (check_) check_();
  }

  std::string host() const override { return parent_.host; }
  std::string domain() const override { return parent_.domain; }

  WireFactory wire_factory() override {
    const WireFactory& wires = parent_.wires;
    if (!wires.make) return {};
    // Converts the new ranks to ranks of the group, because the group's function `make` takes ranks of the group.
    return {wires.name, wires.preferred,
            [make = wires.make, members = members_](const std::vector<Rank>& ranks, std::size_t context,
                                                    std::size_t frame_bytes) {
              std::vector<Rank> theirs;
              for (const Rank rank : ranks) theirs.push_back(members[static_cast<std::size_t>(rank)]);
              return make(theirs, context, frame_bytes);
            },
            wires.next_context};
  }

  /// Takes part in all remaining exchanges of the group.
  void join_remaining_exchanges(Deadline deadline) {
    while (exchanges_left_ > 0) all_gather({}, deadline);
  }

 private:
  std::string_view name_;
  Rank self_;
  std::vector<Rank> members_;
  int exchanges_left_;
  Exchange exchange_;
  ParentInfo parent_;
  std::function<void()> check_;
};

}  // namespace collectives
