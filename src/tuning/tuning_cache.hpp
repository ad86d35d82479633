// Tuning cache: a file in which the library stores measured tuning values. Tuning values are numbers by which the
// library chooses how to perform a call. The file is $XDG_CACHE_HOME/collectives/tuning.json. XDG_CACHE_HOME is
// ~/.cache by default. Users may read, edit and delete the file.
//
// Each entry of the file holds values that are valid in one situation. The entry describes this situation: the version
// of the library, the processor, and the number of ranks or the wire (transport between hosts). The entry also holds
// the date of the measurement. An entry for ranks of one host also holds the measured times.
//
// A process that adds an entry replaces the whole file, so a reader sees the old file or the new one. If two jobs add
// entries at once, one entry may get lost, and its values are then measured again. The library ignores an invalid file
// and logs one warning. For example, a file is invalid if it is a link, belongs to another user, or exceeds
// kMostTuningBytes or kMostJsonDepth.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>

#include "collectives/plan.hpp"
#include "core/tuning.hpp"

namespace collectives {

/// Key of an entry: the situation in which the values of the entry are valid.
struct Situation {
  std::string library;       ///< version and build
  std::string cpu;           ///< name of the processor
  int cores = 0;             ///< number of cores that the ranks of the host may use
  int ranks = 0;             ///< number of ranks on the host
  bool kernel_copy = false;  ///< whether the operating system may copy between the memories of ranks
  /// nanoseconds of a barrier, which show how far the ranks' cores are apart; compared by same_distance(); empty: any
  /// time matches
  std::optional<double> barrier_ns = {};
  /// name of the wire between hosts, its link, and the number of hosts; empty: the entry is for the ranks of one host.
  /// If the name is not empty, `library` and `cpu` are compared, too, but no other field.
  std::string wire = {};
};

/// Returns whether two barrier times count as the same distance between ranks. A barrier between two caches takes more
/// than twice as long as a barrier within one cache. Barrier times between the same cores vary by a third.
bool same_distance(double one_ns, double other_ns) noexcept;

class TuningCache {
 public:
  /// Uses the file at `path`. If `path` is empty, nothing is found and nothing is kept.
  explicit TuningCache(std::string path) : path_(std::move(path)) {}
  /// Returns the cache of this user.
  static TuningCache of_user();
  const std::string& path() const noexcept { return path_; }

  /// Returns `onto` with the values of the matching entry. If several entries match, takes the one with the most
  /// similar barrier time. Returns nothing if no entry matches.
  std::optional<TuningParameters> find(const Situation&,
                                       const TuningParameters& onto = built_in_tuning()) const noexcept;
  /// Adds an entry, which replaces an entry of the same situation. `tuning`: values by name.
  void keep(const Situation&, const nlohmann::json& tuning, const nlohmann::ordered_json& measurements) const noexcept;
  /// Returns all entries of the file, each an object. Returns none if the file is missing or invalid. An invalid file
  /// sets `refused` to the reason, or causes a warning, once per process.
  nlohmann::ordered_json entries(std::string* refused = nullptr) const noexcept;

 private:
  std::string path_;
};

}  // namespace collectives
