// Performance guidelines: what must hold between the times of the library's own calls, on every machine and at every
// size. The idea is that of Traeff, Gropp and Thakur, "Self-consistent MPI performance guidelines". A program must not
// become faster if it replaces a call by other calls that do the same.
//
// A guideline compares two sides. The left side must not take longer than the right side. A side is a list of timed
// calls. Guidelines are rows of a table, and a row describes both sides by terms. Example: the left side of `split` is
// one call with vectors of 2n bytes, and its right side is two calls with vectors of n bytes.
//
// Some rows are about one collective. The other rows hold for every collective, which takes the place of the empty
// operation in their terms. A cell is a guideline for one collective, type, op and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives_bench/options.hpp"

namespace collectives::bench {

/// Length of the vectors in a term, if those of the cell have n bytes.
enum class Length : std::uint8_t {
  same,    ///< n
  longer,  ///< n and one element for each part
  next,    ///< the next size of the list
  twice    ///< 2n
};

/// Form of a timed call.
enum class Form : std::uint8_t {
  blocking,
  persistent,
  grouped,  ///< in one Group with all such calls of the side
  copy      ///< no call: this rank copies as many bytes as input and output of the call have in common
};

/// One call of a side, or several equal calls.
struct Term {
  std::optional<Operation> operation = {};  ///< empty: the collective of the cell
  std::size_t times = 1;                    ///< number of calls; each has buffers of its own
  Length length = Length::same;
  Form form = Form::blocking;
  bool in_place = false;
  bool allocated = false;  ///< whether the buffers come from Communicator::allocate()
  bool forced = false;     ///< whether the call uses the forced backend of the cell
};

/// A row of the table: the time of the left side, times `weight`, is at most that of the right side.
struct Guideline {
  std::string_view name;
  std::string_view rule;  ///< the guideline as a formula
  std::vector<Term> left, right;
  double weight = 1;
};

/// All guidelines, in the order of the report.
std::span<const Guideline> guidelines();
/// Returns the name, by which `--guidelines` selects.
std::string_view to_string(const Guideline*) noexcept;

/// One timed call of this program.
struct TimedCall {
  Case what;
  Form form = Form::blocking;
  bool allocated = false;
  std::size_t set = 0;  ///< number of the buffers among those of equal calls in the side
};
using Side = std::vector<TimedCall>;

/// A guideline for one collective, type, op and size.
struct GuidelineCell {
  const Guideline* guideline = nullptr;
  Case what;  ///< the collective and the size that the report names; the backend is the forced one, or "auto"
  std::size_t bytes = 0;  ///< length n of the whole vector
  Side left, right;
};

/// Operations that guidelines are about: the collectives with parts of equal length.
std::span<const Operation> guideline_operations() noexcept;

/// Returns the cells that the settings select, in the order of the report. Sizes whose terms would exceed max_bytes are
/// left out.
std::vector<GuidelineCell> guideline_cells(const Settings&, int ranks);

/// Throws BadArguments if nothing can be compared: by one rank, or because no guideline has cells.
void check_guidelines(const Settings&, int ranks);

/// Returns a side in words: "reduce_scatter 64 KiB + all_gather 64 KiB".
std::string text_of(const Side&, int ranks);

/// Returns whether both calls differ only in their buffers.
bool are_equal_calls(const TimedCall&, const TimedCall&) noexcept;

}  // namespace collectives::bench
