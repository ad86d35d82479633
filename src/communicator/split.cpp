// Implementation of Communicator::split(), which divides the ranks of a communicator, the parent, among new
// communicators. As in MPI_Comm_split, ranks with the same color form a new communicator. A rank with a negative color
// gets no new communicator.
//
// All ranks of the parent call split(). They first gather the colors and keys of all ranks. The ranks of a new
// communicator then exchange texts in order to connect. Each exchange is an all-gather of the parent, in which all
// ranks of the parent take part. All ranks, even those with a negative color, must therefore make the same number of
// exchanges.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "base/text.hpp"
#include "bootstrap/subset.hpp"
#include "collectives/error.hpp"
#include "communicator/communicator_impl.hpp"
#include "communicator/inherited_options.hpp"

namespace collectives {
namespace {

/// Gathers the values of all ranks by an all-gather that is marked as a call of split(). If the program of another rank
/// calls all_gather() instead of split(), the mark makes both ranks throw an error. `comm`: a Communicator::Impl, whose
/// type is private.
void gather_from_all(auto& comm, ConstBuffer mine, Buffer all, std::span<const std::size_t> counts = {}) {
  comm.run_with_reports({.collective = Collective::all_gather,
                         .input = mine,
                         .output = all,
                         .counts = counts,
                         .has_counts = !counts.empty(),
                         .split = true},
                        "take part in split()");
}

/// Reports a failure of the parent to all its ranks, and throws it.
[[noreturn]] void fail_parent(const CommunicatorResources& parent, Errc code, Rank peer, std::string_view text) {
  parent.failure_detector->report_failure(code, peer, "split", text);
  parent.failure_detector->throw_failure();
}

/// Returns the texts of all ranks of the parent, by two all-gathers of the parent: first the lengths, then the texts.
std::vector<std::string> exchange(auto& comm, std::string_view mine) {
  const auto p = static_cast<std::size_t>(comm.resources.size());
  std::vector<std::size_t> lengths(p);
  const std::size_t length = mine.size();
  gather_from_all(comm, std::span(&length, 1), lengths);
  for (std::size_t r = 0; r < p; ++r)
    if (lengths[r] > kMostRecordBytes)
      fail_parent(comm.resources, Errc::mismatch, static_cast<Rank>(r),
                  fmt::format("split: rank {} announces a record of {}; at most {} are possible", r,
                              bytes_text(lengths[r]), bytes_text(kMostRecordBytes)));
  std::string bytes(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
  gather_from_all(comm, {mine.data(), length, DataType::u8}, {bytes.data(), bytes.size(), DataType::u8}, lengths);
  std::vector<std::string> all;
  std::size_t at = 0;
  for (std::size_t r = 0; r < p; at += lengths[r++]) all.push_back(bytes.substr(at, lengths[r]));
  return all;
}

}  // namespace

std::optional<Communicator> Communicator::split(int color, int key, const CommunicatorOptions& options) {
  impl_->check_process("split");
  const int mine[] = {color, key};
  std::vector<int> all(2 * static_cast<std::size_t>(size()));
  gather_from_all(*impl_, mine, all);
  std::vector<Rank> members;
  for (Rank r = 0; r < size(); ++r)
    if (all[2 * static_cast<std::size_t>(r)] == color) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    return all[2 * static_cast<std::size_t>(a) + 1] < all[2 * static_cast<std::size_t>(b) + 1];
  });
  const CommunicatorOptions inherited = inherited_options(impl_->resources, options);
  std::optional<Communicator> part;
  const auto make = [&] {
    std::unique_ptr<NcclComm> nccl_comm = impl_->split_nccl_comm(color, key);
    SubsetBootstrap bootstrap(
        "split", rank(), std::move(members), kInitExchanges,
        [this](std::string_view text, Deadline) { return exchange(*impl_, text); }, impl_->resources.parent_info,
        [this] { impl_->check_peers("split"); });
    if (color < 0) return bootstrap.join_remaining_exchanges(Deadline::never());
    try {
      part = Communicator(
          std::make_unique<Impl>(bootstrap, inherited, nullptr, Impl::Visibility::visible, std::move(nccl_comm)));
    } catch (const std::bad_alloc&) {
      bootstrap.join_remaining_exchanges(Deadline::never());
      throw Error(Errc::system, fmt::format("split: rank {}: out of memory", rank()), rank(), rank(), "split");
    } catch (...) {
      bootstrap.join_remaining_exchanges(Deadline::never());
      throw;
    }
    bootstrap.join_remaining_exchanges(Deadline::never());
  };
  // The new communicator uses the GPU of its parent, even if another GPU is the current one of this thread.
  const std::shared_ptr<Device>& device = impl_->resources.context.device;
  if (device == nullptr) {
    make();
    return part;
  }
  bool begun = false;
  try {
    device->while_current([&] {
      begun = true;
      make();
    });
  } catch (const Error& error) {
    if (begun) throw;
    fail_parent(impl_->resources, Errc::system, rank(), fmt::format("split: rank {}: {}", rank(), error.what()));
  }
  return part;
}

}  // namespace collectives
