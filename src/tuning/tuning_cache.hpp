// Cache of measured tuning values: the file $XDG_CACHE_HOME/collectives/tuning.json, which users may read, edit and
// delete.
//
// An entry names the machine and the situation. It holds the values, the time of the measurement and the measurements.
//
// The file is replaced as a whole. A reader sees the old one or the new one. If two jobs write at once, one entry may
// get lost. It is then measured again. An invalid file is ignored. The log reports it at level info.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "collectives/plan.hpp"
#include "core/tuning.hpp"

namespace collectives {

/// Key of an entry: what must be equal before values are used again.
struct Situation {
  std::string library;       ///< version and build
  std::string cpu;           ///< name of the processor
  int cores = 0;             ///< number of cores that the ranks of the host may use
  int ranks = 0;             ///< number of ranks on the host
  bool kernel_copy = false;  ///< whether the kernel may copy between them
  /// nanoseconds of a barrier, compared by same_distance(); empty: find() accepts any distance
  std::optional<double> barrier_ns = {};
  /// wire between hosts and its ends, for values of the wire; cores, ranks, kernel_copy and barrier_ns then do not
  /// count
  std::string wire = {};
};

/// Returns whether two barriers may be of ranks at the same distance. A barrier between two caches takes more than
/// twice as long as one in a single cache. Barriers of the same cores vary by a third.
bool same_distance(double one_ns, double other_ns) noexcept;

class TuningCache {
 public:
  /// Uses the file at `path`. If `path` is empty, nothing is found and nothing is kept.
  explicit TuningCache(std::string path) : path_(std::move(path)) {}
  /// Returns the cache of this user.
  static TuningCache of_user();
  const std::string& path() const noexcept { return path_; }

  /// Returns `onto` with the values of the matching entry. If several entries match, the one with the nearest barrier
  /// counts. Empty if no entry matches.
  std::optional<TuningParameters> find(const Situation&,
                                       const TuningParameters& onto = built_in_tuning()) const noexcept;
  /// Adds an entry. Replaces the one of the same situation. `tuning`: values by name.
  void keep(const Situation&, const nlohmann::json& tuning, const nlohmann::ordered_json& measurements) const noexcept;
  /// Returns all entries of the file.
  nlohmann::ordered_json entries() const noexcept;

 private:
  std::string path_;
};

}  // namespace collectives
