// Sub-communicators: the ranks of one color meet through the communicator they are split from.
#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "communicator_impl.hpp"

namespace collectives {
namespace {

/// The ranks of one color meet through the communicator they are split from. Every rank of the parent takes part in
/// every exchange, whatever its color, so exchanges of different colors are one collective of the parent.
class SplitBootstrap final : public Bootstrap {
 public:
  SplitBootstrap(Communicator& parent, WireFactory wires, std::vector<Rank> members)
      : parent_(parent), wires_(std::move(wires)), members_(std::move(members)) {}

  std::string_view name() const noexcept override { return "split"; }
  Rank rank() const noexcept override {
    return static_cast<Rank>(std::find(members_.begin(), members_.end(), parent_.rank()) - members_.begin());
  }
  int size() const noexcept override { return static_cast<int>(members_.size()); }

  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    --exchanges_left_;
    const auto all = exchange(parent_, mine);
    std::vector<std::string> ours;
    for (const Rank member : members_) ours.push_back(all[static_cast<std::size_t>(member)]);
    return ours;
  }

  WireFactory wire_factory() override {
    if (!wires_.make) return {};
    // Members of the new communicator are ranks of the parent, whose own ranks `make` counts in.
    return {[make = wires_.make, members = members_](const std::vector<Rank>& ranks, std::size_t context,
                                                     std::size_t frame_bytes) {
              std::vector<Rank> theirs;
              for (const Rank rank : ranks) theirs.push_back(members[static_cast<std::size_t>(rank)]);
              return make(theirs, context, frame_bytes);
            },
            wires_.next_context};
  }

  /// Takes part in the exchanges that other colors still make.
  void keep_company() {
    while (exchanges_left_ > 0) all_gather({}, Deadline::never());
  }

  static std::vector<std::string> exchange(Communicator& comm, std::string_view mine) {
    const auto p = static_cast<std::size_t>(comm.size());
    std::vector<std::size_t> lengths(p);
    const std::size_t length = mine.size();
    comm.all_gather(std::span(&length, 1), lengths);
    std::string bytes(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
    comm.all_gather_v({mine.data(), length, DataType::u8}, {bytes.data(), bytes.size(), DataType::u8}, lengths);
    std::vector<std::string> all;
    std::size_t at = 0;
    for (std::size_t r = 0; r < p; at += lengths[r++]) all.push_back(bytes.substr(at, lengths[r]));
    return all;
  }

 private:
  Communicator& parent_;
  WireFactory wires_;
  std::vector<Rank> members_;
  int exchanges_left_ = kMeetExchanges;
};

}  // namespace

std::optional<Communicator> Communicator::split(int color, int key, const CommunicatorOptions& options) {
  const int mine[] = {color, key};
  std::vector<int> all(2 * static_cast<std::size_t>(size()));
  all_gather(mine, all);
  std::vector<Rank> members;
  for (Rank r = 0; r < size(); ++r)
    if (all[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  CommunicatorOptions inherited = options;
  if (inherited.backend.empty()) inherited.backend = impl_->settings.backend;
  if (inherited.timeout.count() == 0) inherited.timeout = impl_->settings.timeout;
  if (!inherited.deterministic) inherited.deterministic = impl_->settings.deterministic;
  if (!inherited.progress_thread) inherited.progress_thread = impl_->settings.progress_thread;
  if (inherited.transport.empty()) inherited.transport = impl_->settings.transport;
  SplitBootstrap bootstrap(*this, impl_->wires, std::move(members));
  if (color < 0) {
    bootstrap.keep_company();
    return std::nullopt;
  }
  try {
    return Communicator(bootstrap, inherited);
  } catch (...) {
    bootstrap.keep_company();
    throw;
  }
}

}  // namespace collectives
