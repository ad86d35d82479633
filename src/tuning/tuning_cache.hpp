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
#include "core/tuning.hpp"

namespace collectives {

/// What must be equal for numbers to be used again.
struct Situation {
  std::string library;                    ///< version and build
  std::string cpu;                        ///< the processor's name
  int cores = 0;                          ///< that the ranks of the host may use
  int ranks = 0;                          ///< on the host
  bool kernel_copy = false;               ///< whether the kernel may copy between them
  std::optional<double> barrier_ns = {};  ///< what a barrier of theirs takes, as far as same_distance() says; nothing:
                                          ///< to find numbers, however far the ranks are from one another
  std::string wire = {};  ///< of numbers about the wire between hosts: which one, from where to where; then cores,
                          ///< ranks, kernel_copy and barrier_ns do not matter
};

/// Whether two barriers may be of ranks that are equally far from one another. Those of one cache and those of two
/// differ by more than twice, those of the same cores at other times by a third.
bool same_distance(double one_ns, double other_ns) noexcept;

class TuningCache {
 public:
  /// Nothing is found and nothing kept where `path` is empty.
  explicit TuningCache(std::string path) : path_(std::move(path)) {}
  /// The file of this user.
  static TuningCache of_user();
  const std::string& path() const noexcept { return path_; }

  /// The numbers `onto`, and over them those of the entry, of several the one whose barrier is nearest; empty when
  /// there is none.
  std::optional<Tuning> find(const Situation&, const Tuning& onto = built_in_tuning()) const noexcept;
  /// Adds an entry, or replaces the one of the same situation. `tuning`: fields by name.
  void keep(const Situation&, const nlohmann::json& tuning, const nlohmann::ordered_json& measurements) const noexcept;
  /// All entries, as they are in the file.
  nlohmann::ordered_json entries() const noexcept;

 private:
  std::string path_;
};

}  // namespace collectives
