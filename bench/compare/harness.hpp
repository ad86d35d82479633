// Harness of the comparison with other libraries. A contender is a library that is timed: ours, a peer, or the bound
// (roofline.cpp). All contenders are timed by the same machine code.
//
// A barrier (sync_file.hpp) precedes each timed call. Every rank times its own call and stores the time in the sync
// file, which all ranks map. The time of a call is that of the slowest rank. A cell is one collective at one size. Its
// time is the median over its calls. Between two barriers only the call runs. Back to back, a loop of calls is timed
// instead of one call.
//
// The hypervisor may move or withdraw the cores of a virtual machine many times a minute. Data between distant cores
// takes three times as long as between near ones. Every cell therefore records the time of a barrier before and after
// it, and the fraction of the cores' time that other guests received. With --near or --stolen the harness repeats
// disturbed cells (noise.hpp).
//
// Backends of one library are timed in turns within one start of the program, because the times of two starts may
// differ more than those of two backends.
//
// A contender implements all-reduce, reduce-scatter, all-gather and broadcast, or some of them. The element type is
// f32, the op is sum and the root is rank 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "sync_file.hpp"

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

  /// Returns memory for `count` elements, owned by the contender. The default is ordinary pages.
  virtual float* make_buffer(std::size_t count);
  virtual bool offers(Operation, bool /*in_place*/) const { return true; }

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
