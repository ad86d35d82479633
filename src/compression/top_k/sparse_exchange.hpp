// How members come to the sum of what each of them has chosen.
//
// gathered   Everyone shows everyone what he has chosen, and adds all of it: one latency, (m - 1) k entries out of each
//            member. Nothing depends on what the others have chosen, so all lengths are known beforehand.
// split      Every member owns a range of the vector. It gets the entries of its range, adds them, and shows everyone
//            the sum: about 2 k entries out of each member where there is little overlap, however many members there
//            are, at the price of four exchanges, as lengths have to be told first. A sum that is no longer sparse
//            travels as it is (Renggli et al., "SparCML", 2019: split all-gather, and its dense switch).
//
// Either way the contributions to an element are added in the order of the members, and divided once.
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
    SparseForm form = SparseForm::gathered;  ///< or split
    SparseFormat format;
    const RankView* view = nullptr;
    bool along_rail = false;           ///< the members are the ranks of this rank's rail, not all ranks
    std::size_t frame_bytes = 0;       ///< of a message
    std::size_t rounds_in_flight = 1;  ///< rounds that may be under way at once
    float divisor = 1;
  };
  /// What a member says of what it has chosen.
  struct MemberStatus {
    std::uint32_t non_finite;        ///< how many values are not
    std::uint32_t first_non_finite;  ///< index of the first of them
  };

  /// Begins with this rank's entries, which stay where they are until the last stage.
  void start(const Setting&, const Entries& own, MemberStatus status);
  /// Describes the next stage in `job`, keeping its tag; false when everything is here. Throws Error{system}, naming
  /// the rank, for a message that is none of what it should be.
  bool next(Job& job);
  /// The word of member `m`; once next() has returned false.
  MemberStatus status_of(std::size_t m) const { return statuses_[m]; }
  /// What there is to add: entries, in this order, and values of whole ranges, which are sums already.
  struct Result {
    std::vector<Entries> terms;
    std::vector<std::pair<Range, const std::byte*>> dense;
    float divisor = 1;                      ///< of the sum of the terms
    std::optional<std::size_t> union_size;  ///< elements that get anything, where that is known before they are added
  };
  /// Once next() has returned false, and until the next start(). Throws as next().
  const Result& result();
  /// Adds everything up into `sum`, of format.n elements, all of them 0. Returns how many got anything.
  std::size_t add_to(float* sum);

  int member() const { return group().self; }
  Rank rank_of(std::size_t m) const { return group().members[m]; }
  std::size_t members() const { return group().members.size(); }
  /// Handed to others so far.
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
  Plan plan_;  // of the stage under way
  std::uint64_t bytes_sent_ = 0;
  std::vector<MemberStatus> statuses_;
  std::vector<std::byte> records_, outgoing_;
  std::vector<std::size_t> offsets_, incoming_offsets_;
  std::vector<std::uint32_t> counts_;  // of each member: its word, and how many entries it has for each
  std::vector<std::uint32_t> sums_;    // of each member: entries of the sum of its range
  std::vector<std::uint32_t> indices_;
  std::vector<float> values_;
  std::vector<Entries> entries_;
  Result result_;
  SparseSum sum_;
  std::vector<float> range_sum_;
};

}  // namespace collectives
