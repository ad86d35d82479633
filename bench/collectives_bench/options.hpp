// Settings of collectives_bench, the benchmark of collectives. A struct holds the values of the command line. The list
// of measurements follows from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"
#include "collectives_bench/operation.hpp"

namespace collectives::bench {

enum class Buffers : std::uint8_t { ordinary, allocated, device };

enum class BootstrapKind : std::uint8_t { automatic, mpi, environment, threads };

/// Compression of gradients: none, a codec, which sends every f32 value in fewer bytes, or top-k, which sends only the
/// largest elements.
struct Compression {
  std::string name = "none";
  const Codec* codec = nullptr;
  double density = 0;  ///< fraction of the elements that top-k sends; 0 without top-k
  bool none() const noexcept { return codec == nullptr && density == 0; }
};

struct Guideline;  // guidelines.hpp

/// Settings that only the sub-command `guidelines` has.
struct GuidelineSettings {
  std::vector<const Guideline*> chosen;
  bool judge_busy = false;  ///< whether to judge on a busy machine, too
};

struct Settings {
  std::vector<Operation> operations{Operation::all_reduce};
  std::vector<std::string> backends{"auto"};
  std::vector<DataType> types{DataType::f32};
  std::vector<ReduceOp::Kind> ops{ReduceOp::Kind::sum};
  std::size_t min_bytes = 0;          ///< length of the shortest whole vector
  std::size_t max_bytes = 64U << 20;  ///< length of the longest whole vector
  std::size_t factor = 2;             ///< ratio of one size to the previous one
  bool odd = false;                   ///< whether odd element counts are measured, too
  bool out_of_place = true;
  bool in_place = true;
  std::size_t iterations = 0;   ///< timed calls of one measurement; 0: as many as fit into seconds_per_size
  std::size_t warmup = 2;       ///< untimed calls before the timed ones, at least 1
  double seconds_per_size = 0;  ///< seconds for one measurement; 0: default_seconds_per_size()
  bool back_to_back = false;    ///< whether timed calls follow one another without a barrier
  bool persistent = false;      ///< whether timed calls are starts of persistent calls
  Buffers buffers = Buffers::ordinary;
  std::size_t rotate = 0;  ///< total bytes of the buffers that timed calls use in turn; 0: all calls use the same ones
  bool deterministic = false;
  std::vector<Compression> compressions{Compression()};
  bool force = false;  ///< whether to compress even if the library predicts no gain
  bool check = true;
  bool against_mpi = false;
  bool fraction_of_roofline = false;
  Rank root = 0;
  std::uint64_t seed = 1;
  std::string json_file, csv_file;  ///< paths; empty: no file
  bool samples = false;             ///< whether json_file gets the time of every timed call
  BootstrapKind bootstrap = BootstrapKind::automatic;
  int threads = 0;                              ///< number of ranks with BootstrapKind::threads; each is a thread
  std::optional<GuidelineSettings> guidelines;  ///< set with the sub-command `guidelines`
};

/// Exception: the command line is invalid. what() is one line and names the valid values.
class BadArguments : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Exception: `--help` was given. what() is the help text.
class HelpWanted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string_view to_string(Buffers) noexcept;

/// Parses the command line, also that of the sub-command `guidelines`. Throws BadArguments or HelpWanted.
Settings parse_settings(int argc, const char* const* argv);

/// One measurement. Its result is a row of the table, or the half of a row that is in place or out of place.
struct Case {
  Operation operation = Operation::all_reduce;
  std::string backend;
  DataType type = DataType::f32;
  ReduceOp::Kind op = ReduceOp::Kind::sum;  ///< reductions only
  std::size_t count = 0;  ///< elements of the vector, or of a rank's part if has_parts() (as in nccl-tests)
  bool in_place = false;
  Compression compression = {};
};

/// Returns the number of elements of the whole vector. If parts have unequal lengths, it is their mean length times
/// the number of ranks.
std::size_t whole_count(const Case&, int ranks) noexcept;

/// Returns the element counts (as Case::count) for one operation and type, in ascending order, each once.
///
/// The sizes are 0 if min_bytes is 0, then min_bytes (8 for 0) times powers of factor, then max_bytes. Each size is
/// rounded up to whole elements in every part. With `odd`, each even count except 0 adds the odd count below it.
std::vector<std::size_t> element_counts(const Settings&, Operation, DataType, int ranks);

/// All measurements in the order of the table. `skipped` counts the pairs of type and op that the library does not
/// have.
struct Schedule {
  std::vector<Case> cases;
  std::size_t skipped = 0;
};
Schedule schedule(const Settings&, int ranks);

/// Returns 30 s divided by the number of measurements, at most 0.1 s.
double default_seconds_per_size(std::size_t measurements) noexcept;

/// Returns the op that `--op` names. "user" is a bitwise xor, which gives the same bits in every order. The factor of
/// pre_scaled_sum is 0.75.
ReduceOp reduce_op(ReduceOp::Kind) noexcept;

}  // namespace collectives::bench
