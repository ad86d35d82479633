// How a contender is timed: the same machine code for ours, for the others and for the bound.
//
// Before each timed call the ranks meet (meeting.hpp). Every rank times its own call from there and leaves the time in
// the file; the time of a call is that of the slowest rank, and a cell's time is the median over its calls. Nothing but
// the call and the barrier runs in between. Back to back, a timed unit is a loop of calls instead of one.
//
// The cores of a virtual machine may be moved, so that a line takes three times as long from one to the other, or taken
// away for a while, many times a minute. Every cell says what the barrier took before and after it, and how much of the
// cores' time was somebody else's. Asked for calm, the harness times again what had none.
//
// Where a library has several ways to do the same, they are timed in turns within one start: two starts may differ by
// more than two ways do.
//
// A contender implements the four collectives for vectors of f32, sum, root 0, and says which it offers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "meeting.hpp"

namespace collectives::compare {

enum class Operation : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast };

std::string_view to_string(Operation) noexcept;

/// One rank of a library under comparison.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Memory for `count` elements that lives as long as the contender: ordinary pages unless it has its own kind.
  virtual float* make_buffer(std::size_t count);
  virtual bool offers(Operation, bool /*in_place*/) const { return true; }

  /// In place: out == in.
  virtual void all_reduce(const float* in, float* out, std::size_t count) = 0;
  /// `in` is one part of `part` elements per rank. In place: out == in, the whole vector is the result's to use.
  /// Returns where this rank's part of the sum stands.
  virtual const float* reduce_scatter(const float* in, float* out, std::size_t part) = 0;
  /// `out` is one part of `part` elements per rank. In place: `in` is this rank's part of `out`.
  virtual void all_gather(const float* in, float* out, std::size_t part) = 0;
  /// From rank 0, in place: the only form that MPI has.
  virtual void broadcast(float* data, std::size_t count) = 0;

  virtual void progress() {}

  /// From now on all is done in this of the library's ways; empty: as it comes. Unless it is empty, a call may throw,
  /// on all ranks, when it cannot be done so.
  virtual void go(const std::string& way);

 private:
  std::vector<Mapping> buffers_;
};

/// Makes the contender of this rank. `variant` is one of several kinds of user of the same library.
using ContenderFactory = std::function<std::unique_ptr<Contender>(Meeting&, const std::string& variant)>;

/// A command line that cannot be obeyed. what() is one line.
class BadArguments : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The main function of a contender's program: reads the arguments, times every cell they name, and appends one JSON
/// line for each to a file. Rank and size are those that mpirun gave. Returns the exit status.
int run_contender(int argc, char** argv, const ContenderFactory&);

}  // namespace collectives::compare
