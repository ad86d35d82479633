// Implementation of call records. A call record describes one call of a rank by its number, its arguments and hashes.
// Ranks compare their records to find a mismatch, that is, a call in which their arguments differ. The details of a
// record are used mainly in error texts, such as the name of a tensor. This file encodes details, compares records, and
// writes the texts about mismatches.
#include "core/call_record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/text.hpp"
#include "collectives/plan.hpp"
#include "core/collective.hpp"

namespace collectives {

// ---- details ----

void append_detail(std::string& to, Detail kind, std::string_view value, std::size_t at_most) {
  value = value.substr(0, at_most);
  to += static_cast<char>(kind);
  to += static_cast<char>(value.size() & 0xff);
  to += static_cast<char>(value.size() >> 8);
  to += value;
}

namespace {

void append_numbers(std::string& to, Detail kind, std::span<const std::size_t> numbers, std::size_t at_most) {
  const auto first = numbers.first(std::min(numbers.size(), at_most));
  append_detail(to, kind, {reinterpret_cast<const char*>(first.data()), first.size_bytes()}, first.size_bytes());
}

std::vector<std::uint64_t> numbers_of(std::string_view value) {
  std::vector<std::uint64_t> numbers(value.size() / sizeof(std::uint64_t));
  if (!numbers.empty()) std::memcpy(numbers.data(), value.data(), numbers.size() * sizeof(std::uint64_t));
  return numbers;
}

}  // namespace

void append_lengths(std::string& to, std::span<const std::size_t> lengths) {
  append_numbers(to, Detail::lengths, lengths, kDetailLengths);
}

void append_parts(std::string& to, const PartLayout& parts) {
  if (parts.displacements.empty()) return append_lengths(to, parts.counts);
  append_numbers(to, Detail::lengths, parts.counts, kDetailLengths / 2);
  append_numbers(to, Detail::displacements, parts.displacements, kDetailLengths / 2);
}

CallDetails decode_details(std::string_view bytes) {
  CallDetails details;
  while (bytes.size() >= 3) {
    const auto byte = [&](std::size_t at) { return static_cast<std::size_t>(static_cast<unsigned char>(bytes[at])); };
    const std::string_view value = bytes.substr(3, byte(1) | byte(2) << 8);
    switch (static_cast<Detail>(bytes[0])) {
      case Detail::name: details.name = value; break;
      case Detail::op: details.op = value; break;
      case Detail::compression: details.compression = value; break;
      case Detail::refusal: details.refusal = value; break;
      case Detail::lengths: details.lengths = numbers_of(value); break;
      case Detail::displacements: details.displacements = numbers_of(value); break;
    }
    bytes.remove_prefix(3 + value.size());
  }
  return details;
}

// ---- comparison ----

bool agree(const CallRecord& a, const CallRecord& b) noexcept {
  // Different calls may have equal hashes, so this function also compares signatures and names. If a later call has
  // overwritten the details of a record, its name is missing and is not compared.
  const bool names_differ = !a.details.name.empty() && !b.details.name.empty() && a.details.name != b.details.name;
  return a.hash.after == b.hash.after && a.signature == b.signature && !names_differ;
}

// ---- texts ----

namespace {

std::atomic<const Vocabulary*> vocabulary = nullptr;

/// Arguments in which ranks' records of one call differ.
struct Differences {
  explicit Differences(const std::vector<Arrived>& arrived) {
    const auto differ = [&](auto&& field) {
      return std::ranges::any_of(arrived, [&](const Arrived& a) { return field(a) != field(arrived.front()); });
    };
    const auto in_signature = [&](auto Signature::*field) {
      return differ([field](const Arrived& a) { return a.call.signature.*field; });
    };
    collective = in_signature(&Signature::collective) || in_signature(&Signature::split);
    op = differ([](const Arrived& a) { return std::pair(a.call.signature.op, a.call.signature.op_detail); });
    root = in_signature(&Signature::root);
    backend = in_signature(&Signature::backend);
    deterministic = in_signature(&Signature::deterministic);
    counts =
        differ([](const Arrived& a) { return std::pair(a.call.signature.has_counts, a.call.signature.counts_hash); });
    const bool wire_name = differ([](const Arrived& a) { return a.call.signature.wire.view(); });
    wire = wire_name || differ([](const Arrived& a) { return a.call.signature.wire.hash; });
    wire_detail = wire && !wire_name;
    force = in_signature(&Signature::force);
    memory = in_signature(&Signature::memory);
    name = differ([](const Arrived& a) { return std::string_view(a.call.details.name); });
  }
  bool collective, op, root, backend, deterministic, counts, wire, wire_detail, force, memory, name;
};

std::string list_text(const std::vector<std::uint64_t>& lengths) {
  constexpr std::size_t kShown = 8;
  const auto shown = std::span(lengths).first(std::min(lengths.size(), kShown));
  return fmt::format("{}{}", fmt::join(shown, ", "), lengths.size() > kShown ? ", ..." : "");
}

/// Returns the lengths of the parts, or of the tensors of a group. A record of a group of one tensor lists no lengths.
std::vector<std::uint64_t> lengths_of(const Signature& s, const CallDetails& details) {
  const bool has_one = details.lengths.empty() && !s.has_counts && s.counts_hash != 0;
  return has_one ? std::vector<std::uint64_t>{s.count} : details.lengths;
}

std::string counts_text(const Signature& s, const CallDetails& details) {
  if (s.has_counts)
    return details.lengths.empty()
               ? " with counts"
               : " counts " + list_text(details.lengths) +
                     (details.displacements.empty() ? "" : " displacements " + list_text(details.displacements));
  if (s.counts_hash != 0) return " in a group of " + list_text(lengths_of(s, details));
  return s.collective == Collective::all_reduce ? " in no group" : " in equal parts";
}

std::string op_text(const Signature& s, const CallDetails& details) {
  if (s.op == ReduceOp::Kind::pre_scaled_sum)
    return fmt::format(" {} by {}", to_string(s.op), std::bit_cast<double>(s.op_detail));
  return fmt::format(" {}{}{}", to_string(s.op), details.op.empty() ? "" : " ", details.op);
}

std::string compression_text(const Signature& s, const CallDetails& details, bool with_detail) {
  if (s.wire == WireName()) return " not compressed";
  std::string text = fmt::format(" compressed by {}", s.wire.view());
  if (with_detail) text += fmt::format(" ({})", details.compression.empty() ? "of another kind" : details.compression);
  return text;
}

std::string elements_of(const Signature& s) {
  const Vocabulary* const words = vocabulary.load(std::memory_order_relaxed);
  const bool is_foreign = words != nullptr && !reduces(s.collective) && s.op_detail != 0;
  return is_foreign ? words->elements(s) : elements_text(s, s.count, to_string(s.type));
}

/// Returns the arguments of a call as text, such as "4096 x bf16 root 1". The text contains the number and type of the
/// elements, and the arguments that differ between ranks.
std::string arguments_text(const Arrived& arrived, const Differences& differences) {
  const Signature& s = arrived.call.signature;
  const CallDetails& details = arrived.call.details;
  static const std::vector<std::string_view> backends = backend_names();
  if (differences.collective && s.split) return std::string(name_of(s));
  std::string text;
  if (differences.collective && s.collective == Collective::barrier) {
    text = name_of(s);
  } else {
    if (differences.collective) text = fmt::format("{} of ", name_of(s));
    text += elements_of(s);
    if (differences.memory) text += fmt::format(" in {} memory", to_string(s.memory));
    if (differences.op && reduces(s.collective)) text += op_text(s, details);
    if (differences.root && has_root(s.collective)) text += fmt::format(" root {}", s.root);
  }
  if (differences.backend) text += fmt::format(" backend {}", s.backend < backends.size() ? backends[s.backend] : "?");
  if (differences.deterministic) text += s.deterministic ? " deterministic" : " not deterministic";
  if (differences.wire) text += compression_text(s, details, differences.wire_detail);
  if (differences.force) text += s.force ? " by force" : " not by force";
  if (differences.counts && s.collective != Collective::barrier) text += counts_text(s, details);
  if (differences.name) text += details.name.empty() ? " without a name" : fmt::format(" named \"{}\"", details.name);
  return text;
}

/// Group of ranks with equal arguments, and a text about their call: "passed 4096 x bf16".
struct Alike {
  std::string did;
  std::vector<Arrived> ranks;
  bool refused() const { return ranks.front().call.signature.refused; }
};

/// Forms groups of ranks with equal records, and describes each. Groups that have refused the call come first. Smaller
/// groups come before larger ones, because the ranks of a small group probably made the mistake.
template <class Key, class Describe>
std::vector<Alike> groups_of(std::vector<Arrived> arrived, Key&& same, Describe&& describe) {
  std::ranges::sort(arrived, {}, &Arrived::rank);
  std::vector<Alike> groups;
  for (const Arrived& a : arrived) {
    auto group = std::ranges::find_if(groups, [&](const Alike& other) { return same(other.ranks.front(), a); });
    if (group == groups.end()) group = groups.insert(groups.end(), {describe(a), {}});
    group->ranks.push_back(a);
  }
  std::ranges::stable_sort(groups, {},
                           [](const Alike& group) { return std::pair(!group.refused(), group.ranks.size()); });
  return groups;
}

std::string ranks_text_of(const Alike& group) {
  std::vector<Rank> ranks;
  for (const Arrived& a : group.ranks) ranks.push_back(a.rank);
  return ranks_text(ranks);
}

/// Compares the lists of lengths of two groups, or else their lists of displacements. Returns a text about the first
/// difference, such as "; counts differ first at rank 3: 5 and 6". Returns an empty text if the groups have no lists.
std::string first_length_text(const std::vector<Alike>& groups) {
  for (std::size_t g = 1; g < groups.size(); ++g) {
    const CallRecord &a = groups[0].ranks.front().call, &b = groups[g].ranks.front().call;
    const std::vector<std::uint64_t> a_lengths = lengths_of(a.signature, a.details),
                                     b_lengths = lengths_of(b.signature, b.details);
    if (a.signature.collective != b.signature.collective || a.signature.has_counts != b.signature.has_counts ||
        a.signature.counts_hash == b.signature.counts_hash || a_lengths.empty() || b_lengths.empty())
      continue;
    const bool displaced = a_lengths == b_lengths && a.details.displacements != b.details.displacements;
    if (displaced && (a.details.displacements.empty() || b.details.displacements.empty())) return {};
    const std::vector<std::uint64_t>&x = displaced ? a.details.displacements : a_lengths,
          &y = displaced ? b.details.displacements : b_lengths;
    const auto at = static_cast<std::size_t>(std::ranges::mismatch(x, y).in1 - x.begin());
    const auto value = [at](const std::vector<std::uint64_t>& list) {
      return at < list.size() ? std::to_string(list[at]) : "none";
    };
    const std::string_view what = displaced ? "displacements" : a.signature.has_counts ? "counts" : "lengths";
    const std::string_view place = a.signature.has_counts ? "rank" : "tensor";
    if (at == x.size() && at == y.size())  // a record of a group keeps neither the parts of a tensor nor displacements
      return at < kDetailLengths / 2 ? "; counts or displacements of a tensor differ"
                                     : fmt::format("; {} differ after {} {}", what, place, at - 1);
    return fmt::format("; {} differ first at {} {}: {} and {}", what, place, at, value(x), value(y));
  }
  return {};
}

/// Returns a sentence if the text of two groups is equal, or if there is one group. An argument then differs behind the
/// part of it that records hold.
std::string hidden_difference_text(const std::vector<Alike>& groups) {
  if (groups.size() == 1) return "; names that are too long to show here differ";
  for (std::size_t g = 1; g < groups.size(); ++g)
    if (std::ranges::any_of(std::span(groups).first(g), [&](const Alike& other) { return other.did == groups[g].did; }))
      return "; arguments that are not shown here differ";
  return {};
}

/// Returns the label of the call, as most of its ranks have made it. Contains the name of the tensor if it is equal.
std::string common_label(const std::vector<Alike>& groups) {
  const CallRecord& call = groups.back().ranks.front().call;
  const bool named = std::ranges::all_of(
      groups, [&](const Alike& group) { return group.ranks.front().call.details.name == call.details.name; });
  return label_of(call.signature, call.sequence, named ? call.details.name : std::string_view());
}

}  // namespace

void set_vocabulary(const Vocabulary* words) noexcept { vocabulary.store(words, std::memory_order_relaxed); }

std::string elements_text(const Signature& signature, std::uint64_t count, std::string_view type) {
  if (signature.has_counts && has_local_counts(signature.collective)) return fmt::format("parts of {}", type);
  return fmt::format("{} x {}", count, type);
}

std::string_view name_of(const Signature& signature) noexcept {
  if (signature.split) return "split";
  const Vocabulary* const words = vocabulary.load(std::memory_order_relaxed);
  return words != nullptr ? words->function(signature) : to_string(signature.collective);
}

std::string label_of(const Signature& signature, std::uint64_t sequence, std::string_view name) {
  std::string text = fmt::format("{} #{}", name_of(signature), sequence);
  if (!name.empty()) text += fmt::format(" ({})", name);
  return text;
}

Mismatch describe_mismatch(const std::vector<Arrived>& arrived, Rank unrecorded) {
  const auto same = [](const Arrived& a, const Arrived& b) {
    return a.call.signature == b.call.signature && a.call.details.name == b.call.details.name &&
           a.call.details.refusal == b.call.details.refusal;
  };
  std::vector<Arrived> made;
  std::ranges::copy_if(arrived, std::back_inserter(made), [](const Arrived& a) { return !a.call.signature.refused; });
  const Differences differences(made);
  const std::vector<Alike> groups = groups_of(arrived, same, [&](const Arrived& a) {
    const CallRecord& call = a.call;
    if (!call.signature.refused) return "passed " + arguments_text(a, differences);
    return fmt::format("refused {}: {}", label_of(call.signature, call.sequence, {}), call.details.refusal);
  });
  Mismatch mismatch{groups.front().ranks.front().rank, common_label(groups), {}};
  mismatch.text = mismatch.operation;
  for (const Alike& group : groups)
    mismatch.text += fmt::format("{}{} {}", &group == &groups.front() ? ": " : ", ", ranks_text_of(group), group.did);
  if (unrecorded != kNoRank) {
    mismatch.text += fmt::format(", rank {} made another call, of which no record is left", unrecorded);
    return mismatch;
  }
  const std::string first_length = first_length_text(groups);
  mismatch.text += first_length.empty() ? hidden_difference_text(groups) : first_length;
  return mismatch;
}

Mismatch describe_earlier_mismatch(const std::vector<Arrived>& arrived) {
  const auto same = [](const Arrived& a, const Arrived& b) { return a.call.hash.before == b.call.hash.before; };
  const std::vector<Alike> groups = groups_of(arrived, same, [](const Arrived&) { return std::string(); });
  Mismatch mismatch{groups.front().ranks.front().rank, common_label(groups), {}};
  std::vector<std::string> sets;
  for (const Alike& group : groups) sets.push_back(ranks_text_of(group));
  mismatch.text = fmt::format("{}: {} differ in a call before #{}, of which no record is left", mismatch.operation,
                              fmt::join(sets, " and "), groups.front().ranks.front().call.sequence);
  return mismatch;
}

}  // namespace collectives
