// Implementation of TuningCache, a file with measured tuning values. Tuning values are numbers by which the library
// chooses how to perform a call. The file has one entry per situation. A situation describes for what the values are
// valid: the build of the library, the processor, and the number of ranks on one host or the wire between hosts.
#include "tuning/tuning_cache.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <exception>
#include <filesystem>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/environment.hpp"
#include "base/json.hpp"
#include "base/json_record.hpp"
#include "base/log.hpp"
#include "base/safe_file.hpp"
#include "base/text.hpp"
#include "core/tuning.hpp"

namespace collectives {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kAbout =
    "Numbers that the library collectives has measured on this machine, to choose how ranks exchange data. "
    "Delete an entry, or this file, to have it measured again. COLLECTIVES_TUNING=default does without, and "
    "COLLECTIVES_TUNING=FILE takes the numbers from an object as under \"tuning\".";

constexpr const char* kBarrier = "barrier ns";

Json key_of(const Situation& situation) {
  if (!situation.wire.empty())
    return {{"library", situation.library}, {"cpu", situation.cpu}, {"wire", situation.wire}};
  return {{"library", situation.library},
          {"cpu", situation.cpu},
          {"cores", situation.cores},
          {"ranks", situation.ranks},
          {"kernel copies", situation.kernel_copy},
          {kBarrier, situation.barrier_ns ? Json(std::round(*situation.barrier_ns)) : Json()}};
}

// Maximum ratio of two barrier times that count as equal. An entry thus matches times that differ from one another by
// less than a factor of 2 (1.4 * 1.4). The barrier times of ranks with a common cache and of ranks with different
// caches differ by a larger factor.
constexpr double kSameDistance = 1.4;

double factor_between(double one, double other) { return std::max(one / other, other / one); }

/// Returns the ratio of the barrier times of `entry` and `key`: the larger time divided by the smaller. Returns
/// infinity if `entry` and `key` differ in any other field.
double distance(const Json& entry, const Json& key) {
  constexpr double kOther = std::numeric_limits<double>::infinity();
  const auto of = entry.find("of");
  if (of == entry.end() || !of->is_object()) return kOther;
  nlohmann::json one = *of, other = key;  // this type compares objects without regard to the order of their fields
  double factor = 1;
  if (other.contains(kBarrier)) {
    if (!one.contains(kBarrier) || !one[kBarrier].is_number()) return kOther;
    if (!other[kBarrier].is_null()) factor = factor_between(one[kBarrier].get<double>(), other[kBarrier].get<double>());
    one.erase(kBarrier);
    other.erase(kBarrier);
  }
  return one == other && factor >= 1 ? factor : kOther;
}

/// Replaces the whole file in one step. A reader therefore never sees an incomplete file, even if several processes
/// write at once.
void replace_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  FileReplacement file(path);
  if (!file.write(text) || !file.commit(/*to_disk=*/false)) throw std::runtime_error(file_error_text(errno));
}

/// Logs a warning, once per process: the file is ignored for the reason `why`.
void warn_of_file(const std::string& path, std::string_view why) {
  static std::atomic_flag warned;
  if (!warned.test_and_set())
    log_warning(kNoRank, "the tuning cache {} is ignored, and replaced after the next measurement: {}", path, why);
}

/// Maximum number of entries in the file. If a new entry exceeds this number, the oldest entries are dropped.
constexpr std::size_t kMostEntries = 256;

}  // namespace

bool same_distance(double one_ns, double other_ns) noexcept {
  return factor_between(one_ns, other_ns) <= kSameDistance;
}

TuningCache TuningCache::of_user() {
  const std::string directory = cache_directory();
  return TuningCache(directory.empty() ? "" : directory + "/collectives/tuning.json");
}

Json TuningCache::entries(std::string* refused) const noexcept {
  try {
    if (path_.empty()) return Json::array();
    const auto text = read_file(path_, kMostTuningBytes, FileOwner::self);
    if (!text && (errno == ENOENT || errno == ENOTDIR)) return Json::array();
    std::string why = text ? "" : file_error_text(errno);
    Json file = text ? parse_ordered_json(*text, {}, &why) : Json(Json::value_t::discarded);
    if (why.empty()) {
      const auto found = file.is_object() ? file.find("entries") : file.end();
      if (found != file.end() && found->is_array() && found->size() <= kMostEntries &&
          std::ranges::all_of(*found, [](const Json& entry) { return entry.is_object(); }))
        return std::move(*found);
      why = fmt::format("\"entries\" is no list of at most {} objects", kMostEntries);
    }
    if (refused != nullptr)
      *refused = why;
    else
      warn_of_file(path_, why);
  } catch (const std::exception& error) {
    log_info(kNoRank, "{} is ignored: {}", path_, error.what());
  }
  return Json::array();
}

std::optional<TuningParameters> TuningCache::find(const Situation& situation,
                                                  const TuningParameters& onto) const noexcept {
  try {
    const Json key = key_of(situation), all = entries();
    const auto nearest = std::ranges::min_element(all, {}, [&](const Json& entry) { return distance(entry, key); });
    if (nearest == all.end()) return std::nullopt;
    if (distance(*nearest, key) <= kSameDistance) {
      const JsonRecord entry(nlohmann::json(*nearest), path_, Errc::invalid_argument);
      TuningParameters tuning = onto;
      read_json(entry.at("tuning"), tuning, path_);
      tuning.source =
          fmt::format("measured on this machine at {}, kept in {}", printable_text(entry.text("measured", 64)), path_);
      return tuning;
    }
  } catch (const std::exception& error) {
    warn_of_file(path_, error.what());
  }
  return std::nullopt;
}

void TuningCache::keep(const Situation& situation, const nlohmann::json& tuning,
                       const Json& measurements) const noexcept {
  if (path_.empty()) return;
  try {
    const Json key = key_of(situation);
    Json kept = Json::array();
    Json old = entries();
    for (std::size_t i = old.size() < kMostEntries ? 0 : old.size() + 1 - kMostEntries; i < old.size(); ++i)
      if (distance(old[i], key) > kSameDistance) kept.push_back(std::move(old[i]));
    kept.push_back({{"of", key},
                    {"tuning", tuning},
                    {"measured", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
                    {"measurements", measurements}});
    replace_file(path_, json_text(Json{{"about", kAbout}, {"entries", kept}}, 2) + '\n');
  } catch (const std::exception& error) {
    log_info(kNoRank, "{} cannot be written: {}", path_, error.what());
  }
}

}  // namespace collectives
