// Implementation of tunings. A tuning holds the numbers by which the library chooses an algorithm for a call, such as
// the latency of the network. This file reads and writes tunings as JSON, and makes the built-in tuning of this
// machine. Some fields had other names in an older version of the library. This file also accepts JSON with the old
// names.
#include "core/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/bytes.hpp"
#include "base/json.hpp"
#include "base/json_record.hpp"
#include "base/log.hpp"
#include "base/safe_file.hpp"
#include "base/text.hpp"
#include "collectives/error.hpp"

namespace collectives {
namespace {

/// Calls visit(name, field) for every field of a tuning.
template <class AnyTuning, class Visit>
void for_each_field(AnyTuning& tuning, Visit&& visit) {
  visit("inline_bytes", tuning.inline_bytes);
  visit("one_shot_bytes", tuning.one_shot_bytes);
  visit("one_shot_bytes_of_many", tuning.one_shot_bytes_of_many);
  visit("one_shot_bytes_oversubscribed", tuning.one_shot_bytes_oversubscribed);
  visit("zero_copy_bytes", tuning.zero_copy_bytes);
  visit("zero_copy_bytes_oversubscribed", tuning.zero_copy_bytes_oversubscribed);
  visit("single_copy_bytes", tuning.single_copy_bytes);
  visit("single_copy_reduce_bytes", tuning.single_copy_reduce_bytes);
  visit("streaming_bytes", tuning.streaming_bytes);
  visit("streamed_staging_bytes", tuning.streamed_staging_bytes);
  visit("signal_bytes", tuning.signal_bytes);
  visit("chunk_bytes", tuning.chunk_bytes);
  visit("frame_bytes", tuning.frame_bytes);
  visit("host_latency_us", tuning.host_latency_us);
  visit("host_us_per_byte", tuning.host_us_per_byte);
  visit("domain_us", tuning.domain_us);
  visit("domain_us_per_byte", tuning.domain_us_per_byte);
  visit("message_us", tuning.message_us);
  visit("message_us_per_byte", tuning.message_us_per_byte);
  visit("wire_frame_bytes", tuning.wire_frame_bytes);
  visit("wire_us", tuning.wire_us);
  visit("wire_message_us", tuning.wire_message_us);
  visit("wire_work_us_per_byte", tuning.wire_work_us_per_byte);
  visit("wire_us_per_byte", tuning.wire_us_per_byte);
  visit("wire_together_us_per_byte", tuning.wire_together_us_per_byte);
  visit("wire_frames", tuning.wire_frames);
  visit("reduce_us_per_byte", tuning.reduce_us_per_byte);
  visit("coding_us_per_byte", tuning.coding_us_per_byte);
}

void write(nlohmann::json& value, std::size_t field) {
  if (field == Tuning::kNever)
    value = "never";
  else
    value = field;
}
void write(nlohmann::json& value, double field) { value = field; }

bool read(const nlohmann::json& value, std::size_t& field) {
  if (value == "never") {
    field = Tuning::kNever;
    return true;
  }
  if (!value.is_number_unsigned()) return false;
  field = value.get<std::size_t>();
  return true;
}
bool read(const nlohmann::json& value, double& field) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) return false;
  field = value.get<double>();
  return true;
}

/// Field with the name that it had before version 0.2.
struct RenamedField {
  const char* old_name;
  const char* name;
};
constexpr RenamedField kRenamedFields[] = {
    {"one_shot_bytes_of_crowd", "one_shot_bytes_oversubscribed"},
    {"zero_copy_bytes_of_crowd", "zero_copy_bytes_oversubscribed"},
    {"notice_bytes", "signal_bytes"},
};

/// Returns `given` with the new names of fields in place of the old ones. For each old name, logs a warning once per
/// process. If `given` has both names of a field, keeps the value of the new name.
nlohmann::json with_new_names(const nlohmann::json& given, std::string_view where) {
  static std::array<std::atomic_flag, std::size(kRenamedFields)> warned;
  nlohmann::json object = given;
  for (std::size_t i = 0; i < std::size(kRenamedFields); ++i) {
    const auto [old_name, name] = kRenamedFields[i];
    const auto found = given.find(old_name);
    if (found == given.end()) continue;
    object.erase(old_name);
    object.emplace(name, *found);
    if (!warned[i].test_and_set())
      log_warning(kNoRank, "tuning in {}: \"{}\" is now called \"{}\"", where, old_name, name);
  }
  return object;
}

}  // namespace

bool Tuning::operator==(const Tuning& other) const { return TuningParameters(*this) == TuningParameters(other); }

nlohmann::json to_json(const TuningParameters& tuning) {
  nlohmann::json object = nlohmann::json::object();
  for_each_field(tuning, [&](const char* name, const auto& field) { write(object[name], field); });
  return object;
}

void read_json(const nlohmann::json& given, TuningParameters& tuning, std::string_view where) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("tuning in {}: {}", where, why));
  };
  if (!given.is_object()) refuse("not a JSON object");
  const nlohmann::json object = with_new_names(given, where);
  std::vector<std::string> known;
  for_each_field(tuning, [&](const char* name, auto& field) {
    known.emplace_back(name);
    if (object.contains(name) && !read(object.at(name), field))
      refuse(fmt::format("{} is {}, which is no fitting number", name, shown_value(object.at(name))));
  });
  for (const auto& [name, value] : object.items())
    if (std::find(known.begin(), known.end(), name) == known.end())
      refuse(fmt::format("unknown field \"{}\"; known: {}", printable_text(name, 100), fmt::join(known, ", ")));
  // These fields determine sizes of shared memory, so each must lie between `least` and `most`.
  for (const auto& [name, bytes, least, most] :
       {std::tuple{"inline_bytes", tuning.inline_bytes, std::size_t{0}, std::size_t{64 << 10}},
        {"chunk_bytes", tuning.chunk_bytes, std::size_t{64}, std::size_t{64 << 20}},
        {"wire_frames", tuning.wire_frames, std::size_t{2}, std::size_t{1024}},
        {"wire_frame_bytes", tuning.wire_frame_bytes, std::size_t{64}, std::size_t{64 << 20}},
        {"frame_bytes", tuning.frame_bytes, std::size_t{64}, std::size_t{64 << 20}}})
    if (bytes < least || bytes > most)
      refuse(fmt::format("{} is {}; it must be from {} to {}", name, bytes, least, most));
}

namespace {

/// Returns the size in bytes of the largest cache that a core can use, or 0 if the system does not report caches. Does
/// not use sysconf(), which returns the sum of all last-level caches of an AMD processor.
std::size_t last_level_cache() {
  std::size_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    std::string size;
    if (!(file >> size)) return largest;
    largest = std::max(largest, parse_bytes(size).value_or(0));
  }
}

}  // namespace

TuningParameters built_in_tuning() {
  // kMost is the maximum of streaming_bytes. From this length on, results are written by stores that bypass the caches.
  // These stores save time if the buffers of a call do not fit into the last-level cache. The maximum is 128 MiB,
  // because other programs also use the cache if it is very large.
  constexpr std::size_t kMost = 128 << 20;
  static const std::size_t cache = last_level_cache();
  TuningParameters tuning;
  if (cache > 0) tuning.streaming_bytes = std::min(cache, kMost);
  return tuning;
}

TuningParameters tuning_of_file(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, fmt::format("tuning in {}: {}", path, why));
  };
  TuningParameters tuning = built_in_tuning();
  const auto text = read_file(path, kMostTuningBytes);
  if (!text) refuse(file_error_text(errno));
  std::string why;
  const nlohmann::json object = parse_json(*text, {.comments = true}, &why);
  if (object.is_discarded()) refuse(why);
  read_json(object, tuning, path);
  tuning.source = path;
  return tuning;
}

}  // namespace collectives
