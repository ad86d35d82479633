// Harness of the comparison with other libraries. A contender is a library that is timed: ours, a peer, or the bound
// (roofline.cpp). All contenders are timed by the same machine code.
//
// A cell is one collective at one size. The harness times many calls of each cell. A barrier precedes each timed call,
// and only the call runs between two barriers. Every rank times its own call, and stores the time in the sync file,
// memory that all ranks map (sync_file.hpp). The time of a call is its slowest rank's. The time of a cell is the median
// of its calls. In a cell back to back, the harness times a loop of calls instead of single calls.
//
// The hypervisor may move the cores of a virtual machine, or give them to another guest, many times a minute. Data
// between distant cores takes three times as long as between near ones. The harness therefore times a barrier before
// and after each cell. It also records the fraction of the cores' time that other guests received. With --near or
// --stolen, the harness repeats disturbed cells (noise.hpp).
//
// One start of the program times all backends of a library in turns. Reason: two starts may differ more than two
// backends.
//
// A program derives a class from Contender, and implements the operations that its library has. The element type is
// f32, the op is sum, and the root is rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives_bench/operation.hpp"
#include "sync_file.hpp"

namespace collectives::compare {

using bench::Operation;
using bench::to_string;

/// Operations that are timed unless others are asked for. Every contender offers them.
inline constexpr Operation kUsual[] = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                       Operation::broadcast};
/// All operations that can be timed.
inline constexpr Operation kTimed[] = {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
                                       Operation::broadcast,  Operation::all_to_all,     Operation::all_to_all_v,
                                       Operation::gather,     Operation::gather_v,       Operation::scatter,
                                       Operation::scatter_v,  Operation::scan,           Operation::exclusive_scan,
                                       Operation::sendrecv,   Operation::ping_pong};

/// Arguments of an operation that is not among kUsual.
struct Exchange {
  Operation operation;
  const float* in;
  float* out;
  std::size_t count;                    ///< elements of the vector, or the mean length of a part
  std::span<const std::size_t> counts;  ///< elements of each part of the vector that this rank has
  std::size_t rank, ranks;
  bool in_place;

  bool at_root() const noexcept { return rank == 0; }
  std::size_t own() const noexcept { return counts[rank]; }
  /// Ranks at the other ends of messages. A ping_pong has no partner if `to` is not below `ranks`.
  std::size_t to() const noexcept { return operation == Operation::ping_pong ? rank ^ 1U : (rank + 1) % ranks; }
  std::size_t from() const noexcept {
    return operation == Operation::ping_pong ? rank ^ 1U : (rank + ranks - 1) % ranks;
  }
};

/// One rank of a library under comparison.
class Contender {
 public:
  Contender() = default;
  Contender(const Contender&) = delete;
  Contender& operator=(const Contender&) = delete;
  virtual ~Contender() = default;

  /// Returns memory for `count` elements, owned by the contender. The default is ordinary pages.
  virtual float* make_buffer(std::size_t count);
  /// Returns whether the contender performs the operation. The default is true for those of kUsual.
  virtual bool offers(Operation operation, bool in_place) const;

  /// Sums `in` of all ranks into `out`. In place: out == in.
  virtual void all_reduce(const float* in, float* out, std::size_t count) = 0;
  /// Performs a reduce-scatter. `in` has one part of `part` elements per rank. In place out == in, and the call may
  /// overwrite the whole vector. Returns the start of this rank's part of the sum.
  virtual const float* reduce_scatter(const float* in, float* out, std::size_t part) = 0;
  /// Performs an all-gather. `out` has one part of `part` elements per rank. In place `in` is this rank's part of
  /// `out`.
  virtual void all_gather(const float* in, float* out, std::size_t part) = 0;
  /// Performs a broadcast from rank 0, in place. MPI has no other form.
  virtual void broadcast(float* data, std::size_t count) = 0;

  /// Performs an operation that offers() returns true for and that is not among kUsual. A ping_pong sends `in` to and
  /// receives `out` from a partner; the rank with the even number sends first.
  virtual void exchange(const Exchange& arguments);

  virtual void progress() {}

  /// Selects the backend of all later calls; empty selects the default. With a selected backend a call may throw, on
  /// all ranks, if the backend cannot perform it.
  virtual void select_backend(const std::string& backend);

 private:
  std::vector<Mapping> buffers_;
};

/// Makes the contender of this rank. `variant` selects a setting of the library, such as an algorithm.
using ContenderFactory = std::function<std::unique_ptr<Contender>(SyncFile&, const std::string& variant)>;

/// Exception: the command line is invalid. what() is one line.
class BadArguments : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Main function of a contender's program. Reads the arguments, times every cell that they name, and appends one JSON
/// line for each to a file. Rank and size come from the launcher. Returns the exit status.
int run_contender(int argc, char** argv, const ContenderFactory&);

}  // namespace collectives::compare
