// What collectives_bench was asked to do: the command line as a value, and the list of measurements it stands for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/codec.hpp"
#include "collectives/types.hpp"

namespace collectives::bench {

enum class Buffers : std::uint8_t { ordinary, allocated, device };

enum class Meeting : std::uint8_t { automatic, mpi, environment, threads };

/// How gradients travel: as they are, through a codec, or only the largest of them.
struct Compression {
  std::string name = "none";
  const Codec* codec = nullptr;
  double density = 0;  ///< of top-k; 0: it is not that
  bool none() const noexcept { return codec == nullptr && density == 0; }
};

struct Settings {
  std::vector<Collective> collectives{Collective::all_reduce};
  std::vector<std::string> backends{"auto"};
  std::vector<DataType> types{DataType::f32};
  std::vector<ReduceOp::Kind> ops{ReduceOp::Kind::sum};
  std::size_t min_bytes = 0;          ///< of the whole vector
  std::size_t max_bytes = 64U << 20;  ///< of the whole vector
  std::size_t factor = 2;             ///< from one size to the next
  bool odd = false;                   ///< odd element counts beside the round ones
  bool out_of_place = true;
  bool in_place = true;
  std::size_t iterations = 0;   ///< timed calls of one measurement; 0: as many as fit seconds_per_size
  std::size_t warmup = 2;       ///< untimed calls before them, at least 1
  double seconds_per_size = 0;  ///< of one measurement; 0: default_seconds_per_size()
  bool back_to_back = false;    ///< no barrier between timed calls
  Buffers buffers = Buffers::ordinary;
  std::size_t rotate = 0;  ///< bytes of buffers that timed calls take in turn; 0: all take the same
  bool deterministic = false;
  std::vector<Compression> compressions{Compression()};
  bool force = false;  ///< compressed also where the library would rather send everything
  bool check = true;
  bool against_mpi = false;
  bool fraction_of_roofline = false;
  Rank root = 0;
  std::uint64_t seed = 1;
  std::string json_file, csv_file;  ///< empty: none
  bool samples = false;             ///< every timed call in json_file
  Meeting meeting = Meeting::automatic;
  int threads = 0;  ///< ranks that are threads, with Meeting::threads
};

/// The command line cannot be obeyed. what() is one line and names the valid values.
class BadArguments : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `--help` was asked for; what() is the text.
class HelpWanted : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string_view to_string(Buffers) noexcept;

/// Throws BadArguments, HelpWanted.
Settings parse_settings(int argc, const char* const* argv);

/// One measurement: a row of the table, or half of one.
struct Case {
  Collective collective = Collective::all_reduce;
  std::string backend;
  DataType type = DataType::f32;
  ReduceOp::Kind op = ReduceOp::Kind::sum;  ///< of reductions only
  std::size_t count = 0;  ///< as nccl-tests counts: elements of the vector; of one rank's part where it is cut in parts
  bool in_place = false;
  Compression compression = {};
};

bool is_reduction(Collective) noexcept;
/// Whether the vector is one part per rank: reduce_scatter's input, all_gather's output.
bool has_parts(Collective) noexcept;
bool has_root(Collective) noexcept;

/// Elements of the whole vector.
std::size_t whole_count(const Case&, int ranks) noexcept;

/// The element counts (as Case::count) for one collective and type, ascending, each once: 0 if min_bytes is 0, then
/// min_bytes (8 for 0) times powers of factor, then max_bytes. Sizes are rounded up to whole elements in every part.
/// With `odd`, every even count from 2 brings the odd one below it.
std::vector<std::size_t> element_counts(const Settings&, Collective, DataType, int ranks);

/// Every measurement in the order of the table; `skipped` counts the type and op pairs that the library does not have.
struct Schedule {
  std::vector<Case> cases;
  std::size_t skipped = 0;
};
Schedule schedule(const Settings&, int ranks);

/// Half a minute for all measurements together, at most a tenth of a second for each.
double default_seconds_per_size(std::size_t measurements) noexcept;

/// The op of `--op`. "user" is a bitwise xor, so that every order gives the same bits; pre_scaled_sum's factor is 0.75.
ReduceOp reduce_op(ReduceOp::Kind) noexcept;

}  // namespace collectives::bench
