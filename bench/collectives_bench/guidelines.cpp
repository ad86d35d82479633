// Implementation of the performance guidelines: the table, and the cells that follow from it. A cell is a guideline for
// one collective, type, op and size.
#include "collectives_bench/guidelines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace collectives::bench {

namespace {

constexpr Operation kGuidelineOperations[] = {
    Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather, Operation::broadcast,
    Operation::reduce,     Operation::all_to_all,     Operation::gather,     Operation::scatter,
    Operation::scan,       Operation::exclusive_scan, Operation::barrier};

/// Number of calls in a group. Eight short tensors are enough for a group to gain by packing.
constexpr std::size_t kGroupCalls = 8;

/// Returns the table. In all rows, n is the length of the whole vector. With p ranks, the blocks of an all_to_all thus
/// have n / p bytes, as the parts of an all_gather have. If a rank sends equal blocks, an all_to_all is an all_gather.
std::vector<Guideline> make_guidelines() {
  using enum Operation;
  return {
      {"all_reduce_parts",
       "all_reduce(n) <= reduce_scatter(n) + all_gather(n)",
       {{.operation = all_reduce}},
       {{.operation = reduce_scatter}, {.operation = all_gather}}},
      {"all_reduce_root",
       "all_reduce(n) <= reduce(n) + broadcast(n)",
       {{.operation = all_reduce}},
       {{.operation = reduce}, {.operation = broadcast}}},
      {"gather", "gather(n) <= all_gather(n)", {{.operation = gather}}, {{.operation = all_gather}}},
      {"scatter", "scatter(n) <= broadcast(n)", {{.operation = scatter}}, {{.operation = broadcast}}},
      {"all_gather", "all_gather(n) <= all_to_all(n)", {{.operation = all_gather}}, {{.operation = all_to_all}}},
      {"split", "t(2n) <= 2 t(n)", {{.length = Length::twice}}, {{.times = 2}}},
      {"monotony", "0.9 t(n) <= t(m), m the next size", {Term{}}, {{.length = Length::next}}, 0.9},
      {"near_monotony", "0.9 t(n) <= t(n + 1 element)", {Term{}}, {{.length = Length::longer}}, 0.9},
      {"backend", "auto <= forced backend", {Term{}}, {{.forced = true}}},
      {"in_place", "in place <= out of place + copy", {{.in_place = true}}, {Term{}, {.form = Form::copy}}},
      {"allocated", "allocated memory <= ordinary memory", {{.allocated = true}}, {Term{}}},
      {"group", "a group of 8 <= 8 calls", {{.times = kGroupCalls, .form = Form::grouped}}, {{.times = kGroupCalls}}},
      {"persistent", "persistent call <= call", {{.form = Form::persistent}}, {Term{}}},
  };
}

/// Returns all terms of both sides.
std::vector<Term> terms_of(const Guideline& guideline) {
  std::vector<Term> terms = guideline.left;
  terms.insert(terms.end(), guideline.right.begin(), guideline.right.end());
  return terms;
}

bool has_term(const Guideline& guideline, bool (*is_such)(const Term&)) {
  return std::ranges::any_of(terms_of(guideline), is_such);
}

/// Makes the cells of one guideline, collective, backend, type and op.
class CellMaker {
 public:
  CellMaker(const Guideline& guideline, Case what, const Settings& settings, int ranks)
      : guideline_(guideline), what_(std::move(what)), settings_(settings), ranks_(static_cast<std::size_t>(ranks)) {
    unit_ = what_.operation;
    for (const Term& term : terms_of(guideline))
      if (has_parts(term.operation.value_or(what_.operation))) unit_ = term.operation.value_or(what_.operation);
  }

  void append_to(std::vector<GuidelineCell>& cells) const {
    const bool has_size = what_.operation != Operation::barrier;
    // Lengths of the whole vector in elements. With parts, a length is a multiple of the number of ranks.
    std::vector<std::size_t> lengths = {0};
    if (has_size) lengths = element_counts(settings_, unit_, what_.type, static_cast<int>(ranks_));
    for (std::size_t& length : lengths) length *= granule();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::size_t* const next = i + 1 < lengths.size() ? &lengths[i + 1] : nullptr;
      GuidelineCell cell{&guideline_, what_, lengths[i] * size_of(what_.type), {}, {}};
      cell.what.count = count_of(what_.operation, lengths[i]);
      if (add_side(guideline_.left, lengths[i], next, cell.left) &&
          add_side(guideline_.right, lengths[i], next, cell.right))
        cells.push_back(std::move(cell));
    }
  }

 private:
  std::size_t granule() const noexcept { return has_parts(unit_) ? ranks_ : 1; }
  std::size_t count_of(Operation operation, std::size_t length) const noexcept {
    return has_parts(operation) ? length / ranks_ : length;
  }

  /// Adds the calls of a side. Returns false if it does not exist for vectors of `length` elements. `next`: the next
  /// length, or null.
  bool add_side(const std::vector<Term>& terms, std::size_t length, const std::size_t* next, Side& side) const {
    for (const Term& term : terms) {
      std::size_t elements = length;
      if (term.length == Length::next && next == nullptr) return false;
      if (term.length == Length::next) elements = *next;
      if (term.length == Length::longer) elements += granule();
      if (term.length == Length::twice) elements *= 2;
      // Without elements, every call is performed as a barrier, which has cells of its own.
      const bool is_barrier = length == 0 && what_.operation != Operation::barrier;
      if (is_barrier && (term.length == Length::twice || term.forced)) return false;
      const bool is_longer = term.length == Length::twice || term.times > 1;
      if (is_longer && elements * term.times * size_of(what_.type) > settings_.max_bytes) return false;
      TimedCall call{what_, term.form, term.allocated, 0};
      call.what.operation = term.operation.value_or(what_.operation);
      call.what.backend = term.forced ? what_.backend : "auto";
      call.what.count = count_of(call.what.operation, elements);
      call.what.in_place = term.in_place;
      for (; call.set < term.times; ++call.set) side.push_back(call);
    }
    return true;
  }

  const Guideline& guideline_;
  Case what_;
  const Settings& settings_;
  std::size_t ranks_;
  Operation unit_;  // operation that decides of which elements vectors consist: one with parts, if there is one
};

/// Returns whether the guideline has cells of this collective.
bool is_about(const Guideline& guideline, Operation operation) {
  if (const auto one = guideline.left.front().operation) return one == operation;
  if (operation != Operation::barrier) return true;
  // A barrier has no vector.
  return !has_term(guideline,
                   [](const Term& term) { return term.length != Length::same || term.in_place || term.allocated; });
}

}  // namespace

std::span<const Guideline> guidelines() {
  static const std::vector<Guideline> table = make_guidelines();
  return table;
}

std::string_view to_string(const Guideline* guideline) noexcept { return guideline->name; }

std::span<const Operation> guideline_operations() noexcept { return kGuidelineOperations; }

std::vector<GuidelineCell> guideline_cells(const Settings& settings, int ranks) {
  std::vector<GuidelineCell> cells;
  for (const Guideline* const guideline : settings.guidelines->chosen) {
    const bool forces = has_term(*guideline, [](const Term& term) { return term.forced; });
    for (const Operation operation : settings.operations) {
      if (!is_about(*guideline, operation)) continue;
      for (const std::string& backend : forces ? settings.backends : std::vector<std::string>{"auto"})
        for (const DataType type : operation == Operation::barrier ? std::vector{DataType::u8} : settings.types)
          for (const ReduceOp::Kind op : is_reduction(operation) ? settings.ops : std::vector{ReduceOp::Kind::sum})
            if (!is_reduction(operation) || supports(type, reduce_op(op)))
              CellMaker(*guideline, {operation, backend, type, op}, settings, ranks).append_to(cells);
    }
  }
  return cells;
}

void check_guidelines(const Settings& settings, int ranks) {
  if (ranks < 2) throw BadArguments("one rank exchanges no data, so guidelines say nothing; valid: 2 ranks or more");
  if (guideline_cells(settings, ranks).empty())
    throw BadArguments("no guideline compares these collectives at these sizes; valid: more collectives or sizes");
}

bool are_equal_calls(const TimedCall& one, const TimedCall& other) noexcept {
  return one.what.operation == other.what.operation && one.what.backend == other.what.backend &&
         one.what.count == other.what.count && one.what.in_place == other.what.in_place && one.form == other.form &&
         one.allocated == other.allocated;
}

std::string text_of(const Side& side, int ranks) {
  std::string text;
  for (std::size_t first = 0, end = 0; first < side.size(); first = end) {
    const TimedCall& call = side[first];
    while (end < side.size() && are_equal_calls(side[end], call)) ++end;
    if (!text.empty()) text += " + ";
    if (end - first > 1) text += fmt::format("{} x ", end - first);
    const std::string bytes = bytes_text(whole_count(call.what, ranks) * size_of(call.what.type));
    if (call.form == Form::copy) {
      text += "copy";
      continue;
    }
    text += fmt::format("{} {}", to_string(call.what.operation), bytes);
    if (call.what.backend != "auto") text += fmt::format(" by {}", call.what.backend);
    if (call.what.in_place) text += " in place";
    if (call.allocated) text += " in allocated memory";
    if (call.form == Form::persistent) text += ", persistent";
    if (call.form == Form::grouped) text += " in a group";
  }
  return text;
}

}  // namespace collectives::bench
