// Implementation of TuningCache, a file with measured tuning values. TuningCache finds the entry for a situation, and
// replaces the file to add an entry. A situation names the build of the library and the processor. It also names either
// the number of ranks on one host, or the wire between hosts.
#include "tuning/tuning_cache.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "base/environment.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
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

// Maximum ratio of two barrier times that count as the same distance between ranks. Two times that match the same entry
// therefore differ by less than a factor of 2. The times within one cache and between two caches differ by more.
constexpr double kSameDistance = 1.4;

double factor_between(double one, double other) { return std::max(one / other, other / one); }

/// Returns the ratio of the barrier times of `entry` and `key`, the larger to the smaller. Returns infinity if `entry`
/// and `key` differ in any other field.
double distance(const Json& entry, const Json& key) {
  constexpr double kOther = std::numeric_limits<double>::infinity();
  const auto of = entry.find("of");
  if (of == entry.end() || !of->is_object()) return kOther;
  nlohmann::json one = *of, other = key;  // compared in any order of the fields
  double factor = 1;
  if (other.contains(kBarrier)) {
    if (!one.contains(kBarrier) || !one[kBarrier].is_number()) return kOther;
    if (!other[kBarrier].is_null()) factor = factor_between(one[kBarrier].get<double>(), other[kBarrier].get<double>());
    one.erase(kBarrier);
    other.erase(kBarrier);
  }
  return one == other && factor >= 1 ? factor : kOther;
}

/// Replaces the file in one step. A reader never sees a partly written file, even if several processes write.
void replace_file(const std::string& path, const std::string& text) {
  const auto fail = [](int error) { throw std::system_error(error, std::generic_category()); };
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) fail(errno);
  int error = 0;
  for (std::string_view rest = text; !rest.empty() && error == 0;) {
    const ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written < 0)
      error = errno;
    else
      rest.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return;
  ::unlink(temporary.c_str());
  fail(error);
}

}  // namespace

bool same_distance(double one_ns, double other_ns) noexcept {
  return factor_between(one_ns, other_ns) <= kSameDistance;
}

TuningCache TuningCache::of_user() {
  const std::string directory = cache_directory();
  return TuningCache(directory.empty() ? "" : directory + "/collectives/tuning.json");
}

Json TuningCache::entries() const noexcept {
  try {
    std::error_code unknown;
    if (path_.empty() || (!std::filesystem::exists(path_, unknown) && !unknown)) return Json::array();
    std::ifstream file(path_);
    if (!file) throw std::system_error(errno, std::generic_category());
    const Json entries = read_ordered_json_file(file).at("entries");
    if (!entries.is_array() || !std::ranges::all_of(entries, [](const Json& entry) { return entry.is_object(); }))
      throw std::runtime_error("\"entries\" is no list of objects");
    return entries;
  } catch (const std::exception& error) {
    log_info(kNoRank, "{} is ignored: {}", path_, error.what());
    return Json::array();
  }
}

std::optional<TuningParameters> TuningCache::find(const Situation& situation,
                                                  const TuningParameters& onto) const noexcept {
  try {
    const Json key = key_of(situation), all = entries();
    const auto nearest = std::ranges::min_element(all, {}, [&](const Json& entry) { return distance(entry, key); });
    if (nearest == all.end()) return std::nullopt;
    if (distance(*nearest, key) <= kSameDistance) {
      TuningParameters tuning = onto;
      read_json(nearest->at("tuning"), tuning, path_);
      tuning.source =
          fmt::format("measured on this machine at {}, kept in {}", nearest->at("measured").get<std::string>(), path_);
      return tuning;
    }
  } catch (const std::exception& error) {
    log_info(kNoRank, "an entry of {} is ignored: {}", path_, error.what());
  }
  return std::nullopt;
}

void TuningCache::keep(const Situation& situation, const nlohmann::json& tuning,
                       const Json& measurements) const noexcept {
  if (path_.empty()) return;
  try {
    const Json key = key_of(situation);
    Json kept = Json::array();
    for (Json& entry : entries())
      if (distance(entry, key) > kSameDistance) kept.push_back(std::move(entry));
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
