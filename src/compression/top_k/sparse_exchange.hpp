// Sparse exchange: m ranks, the members, send one another the elements that they have selected, and add them.
//
// Each member has selected k elements of a vector of n elements. An entry is the index of a selected element with its
// value. The members are all ranks, or the ranks of one rail: one rank of each host, all with the same local number.
// The sparse exchange has two forms:
//
// gathered: each member sends its k entries to every other member, and adds the entries of all members. This form needs
// one all-gather, in which each member sends (m - 1) k entries. Every member knows all lengths in advance, because k is
// equal on all members.
//
// split: each member owns a range of about n / m elements, and adds the entries of this range. This form needs an
// all-to-all for entries, an all-gather for sums, and an all-gather for lengths before each of them:
//
//   counts    all-gather: every member sends to all members how many entries it has for each range
//   entries   all-to-all: every member sends its entries of each range to the owner of the range, which adds them
//   sums      all-gather: every owner sends to all members how many entries its sum has, but not yet the sum
//   parts     all-gather: every owner sends its sum to all members
//
// Let u be the number of distinct indices that all members together have selected. If the u indices are evenly
// distributed, a member sends (k + u) (m - 1) / m entries on average in the split form.
//
// An owner sends the sum of its range as f32 values without indices, if entries would need as many bytes or more.
// (Renggli et al., "SparCML", 2019: split all-gather with the switch to dense.)
//
// Both forms add the values of an element in the order of the members, and divide the sum once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/plan.hpp"
#include "collectives/top_k.hpp"
#include "compression/sparse.hpp"
#include "execution/executor.hpp"
#include "steps/algorithm.hpp"

namespace collectives {

class SparseExchange {
 public:
  struct Setting {
    SparseForm form = SparseForm::gathered;  ///< Form of the exchange, gathered or split.
    SparseFormat format;
    const RankView* view = nullptr;
    bool along_rail = false;      ///< True: the members are the ranks of this rank's rail. False: all ranks.
    std::size_t frame_bytes = 0;  ///< Maximum payload of a message.
    /// Maximum number of rounds in flight; a round sends at most one message to each member.
    std::size_t rounds_in_flight = 1;
    float divisor = 1;
  };
  /// Status of a member's selection, which all members receive.
  struct MemberStatus {
    std::uint32_t non_finite;        ///< Number of values that are NaN or infinite.
    std::uint32_t first_non_finite;  ///< Index of the first such value.
  };

  /// Starts a sparse exchange. `own`: the entries of this rank, which must stay valid until next() has returned false.
  void start(const Setting&, const Entries& own, MemberStatus status);
  /// Describes the next all-gather or all-to-all in `job`, which the executor then performs. Leaves the tag of `job`
  /// unchanged. Returns false if none is left. Throws Error{system} with the sender's rank if a message is malformed.
  bool next(Job& job);
  /// Returns the status of member `m`. Requires that next() has returned false.
  MemberStatus status_of(std::size_t m) const { return statuses_[m]; }
  /// Summands of the result: entries in the order of the members, and ranges whose values are already sums.
  struct Result {
    std::vector<Entries> terms;
    std::vector<std::pair<Range, const std::byte*>> dense;
    float divisor = 1;  ///< Divisor of the sum of the terms.
    /// Number of elements that any member has selected, if it is known before the addition.
    std::optional<std::size_t> union_size;
  };
  /// Returns the summands. Requires that next() has returned false. The result is valid until the next start(). Throws
  /// as next() does.
  const Result& result();
  /// Adds all summands to `sum`, which holds format.n zeros. Returns the number of elements that any member has
  /// selected.
  std::size_t add_to(float* sum);

  int member() const { return group().self; }
  Rank rank_of(std::size_t m) const { return group().members[m]; }
  std::size_t members() const { return group().members.size(); }
  /// Returns the number of bytes sent so far.
  std::uint64_t bytes_sent() const { return bytes_sent_; }

 private:
  enum class Phase : std::uint8_t { counts, entries, sums, parts, all_here };

  RankGroup group() const { return setting_.along_rail ? setting_.view->grid.rail() : setting_.view->world; }
  Range range_of(std::size_t m) const {
    return part({0, setting_.format.n}, static_cast<int>(members()), static_cast<int>(m));
  }
  SparseFormat format_of(std::size_t from, std::size_t to) const;
  bool dense(std::size_t m) const;
  std::size_t part_bytes(std::size_t m) const;
  std::uint32_t& count(std::size_t from, std::size_t to) { return counts_[from * (members() + 2) + 2 + to]; }
  std::uint32_t count(std::size_t from, std::size_t to) const { return counts_[from * (members() + 2) + 2 + to]; }

  void gather_records(Job&);
  void gather_counts(Job&);
  void send_entries(Job&);
  void add_own_range();
  void gather_parts(Job&);
  void read_records();
  void job_of(Job&, const Algorithm&, Collective, Parts parts, Parts incoming, std::size_t longest,
              const std::byte* input, std::byte* output);
  [[noreturn]] void refuse(std::size_t m, const std::string& why) const;

  Setting setting_;
  Phase phase_ = Phase::all_here;
  Entries own_;
  MemberStatus own_status_{};
  Plan plan_;  // Plan of the current phase.
  std::uint64_t bytes_sent_ = 0;
  std::vector<MemberStatus> statuses_;
  std::vector<std::byte> records_, outgoing_;
  std::vector<std::size_t> offsets_, incoming_offsets_;
  // For each member: its status, and its number of entries for each range.
  std::vector<std::uint32_t> counts_;
  std::vector<std::uint32_t> sums_;  // Number of entries in the sum of each member's range.
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<Entries> entries_;
  Result result_;
  SparseSum sum_;
  std::vector<float> range_sum_;
};

}  // namespace collectives
