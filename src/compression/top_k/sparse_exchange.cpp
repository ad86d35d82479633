// Implementation of the sparse exchange, in which ranks send one another selected elements of a vector, and add them.
// The members of the exchange are all ranks, or the ranks of one rail: one rank of each host.
//
// The exchange consists of a few all-gathers and all-to-alls. The function next() describes each of them as a job,
// which the executor performs. A record is the data that one member sends in one of these collectives. An entry is the
// index of a selected element with its value.
//
// A sparse exchange has one of two forms, gathered or split (sparse_exchange.hpp). In the gathered form, the record of
// a member holds all its entries. In the split form, each member adds the entries of one range of the vector. The split
// form has four phases. Each member first sends to all members how many entries it has for each range. It then sends
// the entries of each range to the owner of the range, which adds them. Each owner then sends to all members how many
// entries the sum of its range has. In the last phase, each owner sends these entries to all members.
#include "compression/top_k/sparse_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "collectives/error.hpp"
#include "execution/multi_phase_operation.hpp"

namespace collectives {
namespace {

/// Emits the sends and receives of an all-gather. Part m of the output is the record of member m.
template <bool along_rail>
void emit_gather(const RankView& view, const RoundArgs& args, StepSink& run) {
  const RankGroup group = along_rail ? view.grid.rail() : view.world;
  for (int stop = 1; stop < group.size(); ++stop)
    run(send(group.at(group.ahead(stop)), args.parts[group.self], Place::output));
  AtDepth later{run, kRoundsOnTheWire};
  for (int stop = 1; stop < group.size(); ++stop)
    later(receive(group.at(group.behind(stop)), args.parts[group.behind(stop)]));
}
/// Emits the sends and receives of an all-to-all. Part m of `parts` is the data for member m. The data from member m
/// arrive in part m of `incoming`.
template <bool along_rail>
void emit_all_to_all(const RankView& view, const RoundArgs& args, StepSink& run) {
  const RankGroup group = along_rail ? view.grid.rail() : view.world;
  for (int stop = 1; stop < group.size(); ++stop)
    run(send(group.at(group.ahead(stop)), args.parts[group.ahead(stop)], Place::input));
  AtDepth later{run, kRoundsOnTheWire};
  for (int stop = 1; stop < group.size(); ++stop)
    later(receive(group.at(group.behind(stop)), args.incoming[group.behind(stop)]));
}

constexpr Algorithm kGather[] = {phase_algorithm("top_k_gather", emit_gather<false>),
                                 phase_algorithm("top_k_gather_along_rail", emit_gather<true>)};
constexpr Algorithm kAllToAll[] = {phase_algorithm("top_k_all_to_all", emit_all_to_all<false>),
                                   phase_algorithm("top_k_all_to_all_along_rail", emit_all_to_all<true>)};

template <class T>
std::byte* bytes_of(std::vector<T>& list) {
  return reinterpret_cast<std::byte*>(list.data());
}

}  // namespace

void SparseExchange::start(const Setting& setting, const Entries& own, MemberStatus status) {
  setting_ = setting;
  own_ = own;
  own_status_ = status;
  bytes_sent_ = 0;
  statuses_.assign(members(), {});
  phase_ = Phase::counts;
}

bool SparseExchange::next(Job& job) {
  if (setting_.form == SparseForm::gathered) {
    if (phase_ == Phase::counts) {
      phase_ = Phase::parts;
      gather_records(job);
      return true;
    }
    if (phase_ == Phase::parts) read_records();
    phase_ = Phase::all_here;
    return false;
  }
  switch (phase_) {
    case Phase::counts:
      phase_ = Phase::entries;
      gather_counts(job);
      return true;
    case Phase::entries:
      phase_ = Phase::sums;
      send_entries(job);
      return true;
    case Phase::sums:
      phase_ = Phase::parts;
      add_own_range();
      offsets_.resize(members() + 1);
      for (std::size_t m = 0; m <= members(); ++m) offsets_[m] = m * sizeof(std::uint32_t);
      job_of(job, kGather[setting_.along_rail], Collective::all_gather, Parts::listed(offsets_.data(), group().size()),
             {}, sizeof(std::uint32_t), bytes_of(sums_), bytes_of(sums_));
      return true;
    case Phase::parts:
      phase_ = Phase::all_here;
      gather_parts(job);
      return true;
    case Phase::all_here: break;
  }
  return false;
}

void SparseExchange::job_of(Job& job, const Algorithm& algorithm, Collective collective, Parts parts, Parts incoming,
                            std::size_t longest, const std::byte* input, std::byte* output) {
  plan_ = {};
  plan_.algorithm = &algorithm;
  plan_.segment = setting_.frame_bytes;
  plan_.rounds = std::max<std::size_t>(1, (longest + plan_.segment - 1) / plan_.segment);
  constexpr std::size_t kDepths = 1 + kRoundsOnTheWire;
  const std::size_t rounds_in_flight = std::clamp<std::size_t>(setting_.rounds_in_flight, 1, kDepths);
  plan_.issue_interval = (kDepths + rounds_in_flight - 1) / rounds_in_flight;
  plan_.rounds_in_flight = (kDepths + plan_.issue_interval - 1) / plan_.issue_interval;
  const std::uint64_t tag = job.tag;
  job = {};
  job.plan = &plan_;
  job.args = {{collective}, parts, 0, incoming};
  job.type = DataType::u8;
  job.input = input;
  job.output = output;
  job.tag = tag;
  for (std::size_t m = 0; m < members(); ++m)
    if (static_cast<int>(m) != member())
      bytes_sent_ +=
          parts.full(static_cast<int>(collective == Collective::all_gather ? static_cast<std::size_t>(member()) : m))
              .count;
}

void SparseExchange::refuse(std::size_t m, const std::string& why) const {
  throw Error(Errc::system, fmt::format("rank {} sent what is no selection: {}", rank_of(m), why),
              setting_.view->world.self, rank_of(m));
}

// ---- the gathered form ----

void SparseExchange::gather_records(Job& job) {
  const SparseFormat& format = setting_.format;
  const std::size_t bytes = sizeof(MemberStatus) + format.bytes();
  records_.resize(members() * bytes);
  std::byte* const mine = records_.data() + static_cast<std::size_t>(member()) * bytes;
  std::memcpy(mine, &own_status_, sizeof own_status_);
  write_sparse(format, own_, mine + sizeof(MemberStatus));
  job_of(job, kGather[setting_.along_rail], Collective::all_gather, Parts::equal({0, records_.size()}, group().size()),
         {}, bytes, records_.data(), records_.data());
}

/// Reads the records of all members. Reads this rank's own record too, because its values may be rounded for sending.
void SparseExchange::read_records() {
  const SparseFormat& format = setting_.format;
  const std::size_t bytes = sizeof(MemberStatus) + format.bytes();
  indices_.resize(members() * format.k);
  values_.resize(indices_.size());
  entries_.resize(members());
  for (std::size_t m = 0; m < members(); ++m) {
    const std::byte* record = records_.data() + m * bytes;
    std::memcpy(&statuses_[m], record, sizeof(MemberStatus));
    std::uint32_t* const indices = indices_.data() + m * format.k;
    float* const values = values_.data() + m * format.k;
    if (const std::string why = read_sparse(format, record + sizeof(MemberStatus), indices, values); !why.empty())
      refuse(m, why);
    entries_[m] = {indices, values, format.k};
  }
}

// ---- the split form ----

/// Returns the format of the entries of member `from` in the range of member `to`.
SparseFormat SparseExchange::format_of(std::size_t from, std::size_t to) const {
  return {range_of(to).count, count(from, to), setting_.format.values};
}
/// Returns true if the sum of range `m` is sent as plain f32, because its entries would take as many bytes or more.
/// Sums are always f32, so they are not rounded again.
bool SparseExchange::dense(std::size_t m) const {
  return SparseFormat{range_of(m).count, sums_[m], DataType::f32}.bytes() >= range_of(m).count * sizeof(float);
}
std::size_t SparseExchange::part_bytes(std::size_t m) const {
  return dense(m) ? range_of(m).count * sizeof(float)
                  : SparseFormat{range_of(m).count, sums_[m], DataType::f32}.bytes();
}

void SparseExchange::gather_counts(Job& job) {
  const auto self = static_cast<std::size_t>(member());
  const std::size_t each = (members() + 2) * sizeof(std::uint32_t);
  counts_.assign(members() * (members() + 2), 0);
  std::memcpy(&counts_[self * (members() + 2)], &own_status_, sizeof own_status_);
  const std::uint32_t* at = own_.indices;
  for (std::size_t to = 0; to < members(); ++to) {
    const Range range = range_of(to);
    const std::uint32_t* const end =
        std::lower_bound(at, own_.indices + own_.count, range.first + range.count,
                         [](std::uint32_t index, std::size_t bound) { return index < bound; });
    count(self, to) = static_cast<std::uint32_t>(end - at);
    at = end;
  }
  job_of(job, kGather[setting_.along_rail], Collective::all_gather, Parts::equal({0, members() * each}, group().size()),
         {}, each, bytes_of(counts_), bytes_of(counts_));
}

void SparseExchange::send_entries(Job& job) {
  const auto self = static_cast<std::size_t>(member());
  // All members check the same counts. Their errors are equal except for Error::rank(), the throwing rank.
  for (std::size_t from = 0; from < members(); ++from) {
    std::memcpy(&statuses_[from], &counts_[from * (members() + 2)], sizeof(MemberStatus));
    std::uint64_t all = 0;
    for (std::size_t to = 0; to < members(); ++to) {
      if (count(from, to) > range_of(to).count)
        refuse(from, fmt::format("{} elements for a range of {}", count(from, to), range_of(to).count));
      all += count(from, to);
    }
    if (all != setting_.format.k)
      refuse(from, fmt::format("it holds {} elements in place of {}", all, setting_.format.k));
  }
  offsets_.assign(1, 0);
  incoming_offsets_.assign(1, 0);
  std::size_t longest = 0;
  for (std::size_t m = 0; m < members(); ++m) {
    offsets_.push_back(offsets_.back() + format_of(self, m).bytes());
    incoming_offsets_.push_back(incoming_offsets_.back() + format_of(m, self).bytes());
    for (std::size_t to = 0; to < members(); ++to)
      if (to != m) longest = std::max(longest, format_of(m, to).bytes());
  }
  outgoing_.resize(offsets_.back());
  records_.resize(incoming_offsets_.back());
  std::size_t at = 0;
  for (std::size_t to = 0; to < members(); ++to) {
    const SparseFormat format = format_of(self, to);
    write_sparse(format, {own_.indices + at, own_.values + at, format.k}, outgoing_.data() + offsets_[to],
                 static_cast<std::uint32_t>(range_of(to).first));
    at += format.k;
  }
  std::copy_n(outgoing_.data() + offsets_[self], format_of(self, self).bytes(),
              records_.data() + incoming_offsets_[self]);
  job_of(job, kAllToAll[setting_.along_rail], Collective::barrier, Parts::listed(offsets_.data(), group().size()),
         Parts::listed(incoming_offsets_.data(), group().size()), longest, outgoing_.data(), records_.data());
}

void SparseExchange::add_own_range() {
  const auto self = static_cast<std::size_t>(member());
  const Range range = range_of(self);
  std::size_t all = 0;
  for (std::size_t m = 0; m < members(); ++m) all += count(m, self);
  indices_.resize(all);
  values_.resize(all);
  entries_.resize(members());
  std::size_t at = 0;
  for (std::size_t m = 0; m < members(); ++m) {
    const SparseFormat format = format_of(m, self);
    if (const std::string why =
            read_sparse(format, records_.data() + incoming_offsets_[m], indices_.data() + at, values_.data() + at);
        !why.empty())
      refuse(m, why);
    entries_[m] = {indices_.data() + at, values_.data() + at, format.k};
    at += format.k;
  }
  range_sum_.assign(range.count, 0);
  sums_.assign(members(), 0);
  sums_[self] = static_cast<std::uint32_t>(
      sum_.add(entries_.data(), entries_.size(), setting_.divisor, range_sum_.data(), range.count));
}

void SparseExchange::gather_parts(Job& job) {
  const auto self = static_cast<std::size_t>(member());
  offsets_.assign(1, 0);
  std::size_t longest = 0;
  for (std::size_t m = 0; m < members(); ++m) {
    if (sums_[m] > range_of(m).count)
      refuse(m, fmt::format("a sum of {} elements for a range of {}", sums_[m], range_of(m).count));
    offsets_.push_back(offsets_.back() + part_bytes(m));
    longest = std::max(longest, part_bytes(m));
  }
  records_.resize(offsets_.back());
  if (dense(self)) {
    if (!range_sum_.empty()) std::memcpy(records_.data() + offsets_[self], range_sum_.data(), part_bytes(self));
  } else {
    // The sum of this rank's range has one entry for each distinct index that any member has selected there. indices_
    // holds the indices of all members, including this one.
    std::ranges::sort(indices_);
    indices_.erase(std::unique(indices_.begin(), indices_.end()), indices_.end());
    values_.resize(indices_.size());
    for (std::size_t i = 0; i < indices_.size(); ++i) values_[i] = range_sum_[indices_[i]];
    write_sparse({range_of(self).count, sums_[self], DataType::f32}, {indices_.data(), values_.data(), indices_.size()},
                 records_.data() + offsets_[self]);
  }
  job_of(job, kGather[setting_.along_rail], Collective::all_gather, Parts::listed(offsets_.data(), group().size()), {},
         longest, records_.data(), records_.data());
}

// ---- the sum ----

const SparseExchange::Result& SparseExchange::result() {
  result_.terms.clear();
  result_.dense.clear();
  result_.divisor = setting_.divisor;
  result_.union_size.reset();
  if (setting_.form == SparseForm::gathered) {
    result_.terms = entries_;
    return result_;
  }
  // The ranges are in ascending order. The entries of all sparse sums form one ascending list.
  result_.divisor = 1;
  result_.union_size = std::accumulate(sums_.begin(), sums_.end(), std::size_t{0});
  std::size_t sparse = 0;
  for (std::size_t m = 0; m < members(); ++m) sparse += dense(m) ? 0 : sums_[m];
  indices_.resize(sparse);
  values_.resize(sparse);
  std::size_t at = 0;
  for (std::size_t m = 0; m < members(); ++m) {
    const Range range = range_of(m);
    if (range.count == 0) continue;
    const std::byte* const record = records_.data() + offsets_[m];
    if (dense(m)) {
      result_.dense.emplace_back(range, record);
      continue;
    }
    std::uint32_t* const indices = indices_.data() + at;
    if (const std::string why =
            read_sparse({range.count, sums_[m], DataType::f32}, record, indices, values_.data() + at);
        !why.empty())
      refuse(m, why);
    for (std::size_t i = 0; i < sums_[m]; ++i) indices[i] += static_cast<std::uint32_t>(range.first);
    at += sums_[m];
  }
  result_.terms.push_back({indices_.data(), values_.data(), sparse});
  return result_;
}

std::size_t SparseExchange::add_to(float* sum) {
  result();
  if (!result_.union_size)
    return sum_.add(result_.terms.data(), result_.terms.size(), result_.divisor, sum, setting_.format.n);
  for (const auto& [range, values] : result_.dense) std::memcpy(sum + range.first, values, range.count * sizeof(float));
  for (std::size_t i = 0; i < indices_.size(); ++i) sum[indices_[i]] = values_[i];
  return *result_.union_size;
}

}  // namespace collectives
