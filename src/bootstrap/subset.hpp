// Some ranks of a larger group meet through it: every rank of the group takes part in every exchange, also those that
// are left out and those that another subset consists of, and each picks what its own members say.
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
  /// All ranks of the group pass their bytes, all get everybody's.
  using Exchange = std::function<std::vector<std::string>(std::string_view mine, Deadline)>;

  /// What the group's bootstrap said of this rank.
  struct ParentInfo {
    std::string host, domain;
    WireFactory wires;
  };

  /// `self`: this rank in the group; `members`: ranks of the group, in the order of the new ranks; `exchanges`: how
  /// many all of the group make.
  SubsetBootstrap(std::string_view name, Rank self, std::vector<Rank> members, int exchanges, Exchange exchange,
                  ParentInfo parent)
      : name_(name),
        self_(self),
        members_(std::move(members)),
        exchanges_left_(exchanges),
        exchange_(std::move(exchange)),
        parent_(std::move(parent)) {}

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

  std::string host() const override { return parent_.host; }
  std::string domain() const override { return parent_.domain; }

  WireFactory wire_factory() override {
    const WireFactory& wires = parent_.wires;
    if (!wires.make) return {};
    // Members of the new communicator are ranks of the group, whose own ranks `make` counts in.
    return {wires.name, wires.preferred,
            [make = wires.make, members = members_](const std::vector<Rank>& ranks, std::size_t context,
                                                    std::size_t frame_bytes) {
              std::vector<Rank> theirs;
              for (const Rank rank : ranks) theirs.push_back(members[static_cast<std::size_t>(rank)]);
              return make(theirs, context, frame_bytes);
            },
            wires.next_context};
  }

  /// Takes part in the exchanges that the others still make.
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
};

}  // namespace collectives
