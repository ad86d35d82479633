// What calibration has found, kept in a file that people can read, edit and delete: $XDG_CACHE_HOME/collectives/
// tuning.json. An entry says of which machine and situation it is, the numbers, when they were measured and from what.
//
// The file is replaced as a whole, so a reader sees the old one or the new one. Of two jobs that write at once one
// entry may get lost: it is measured again. Whatever is wrong with the file, nobody fails for it; the log says so at
// level info.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "collectives/plan.hpp"
#include "tuning.hpp"

namespace collectives {

/// What must be equal for numbers to be used again.
struct Situation {
  std::string library;       ///< version and build
  std::string cpu;           ///< the processor's name
  int cores = 0;             ///< that the ranks of the host may use
  int ranks = 0;             ///< on the host
  bool kernel_copy = false;  ///< whether the kernel may copy between them
  double barrier_ns = 0;     ///< what a barrier of theirs takes: equal within a factor of kSameDistance
  std::string wire = {};     ///< of numbers about the wire between hosts: which one, from where to where; then cores,
                             ///< ranks, kernel_copy and barrier_ns do not matter
};

/// Cores of one cache and cores of two are further apart than that, barriers of the same cores at other times are not.
inline constexpr double kSameDistance = 1.7;

class TuningCache {
 public:
  /// Nothing is found and nothing kept where `path` is empty.
  explicit TuningCache(std::string path) : path_(std::move(path)) {}
  /// The file of this user.
  static TuningCache of_user();
  const std::string& path() const noexcept { return path_; }

  /// The numbers `onto`, and over them those of the entry, of several the one whose barrier is nearest; empty when
  /// there is none. `at_any_distance`: whatever its barrier takes.
  std::optional<Tuning> find(const Situation&, const Tuning& onto = built_in_tuning(),
                             bool at_any_distance = false) const noexcept;
  /// Adds an entry, or replaces the one of the same situation. `tuning`: fields by name.
  void keep(const Situation&, const nlohmann::json& tuning, const nlohmann::ordered_json& measurements) const noexcept;
  /// All entries, as they are in the file.
  nlohmann::ordered_json entries() const noexcept;

 private:
  std::string path_;
};

}  // namespace collectives
