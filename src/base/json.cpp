// Implementation of json.hpp: converts text to JSON values, and JSON values to text. A text may come from another
// process. The parser therefore refuses a text that is too long, or that has too many levels of nested values. The
// conversions throw no exceptions of the JSON library.
#include "base/json.hpp"

#include <utility>

namespace collectives {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

struct TooDeep {};

/// Returns the text of an exception of the JSON library, without a beginning such as "[json.exception.parse_error.101]
/// ".
std::string reason_in(std::string_view text) {
  const std::size_t begin = text.starts_with('[') ? text.find("] ") : text.npos;
  return std::string(begin == text.npos ? text : text.substr(begin + 2)).substr(0, 512);
}

template <class Json>
Json parse_as(std::string_view text, const JsonFormat& format, std::string* why) {
  const auto refuse = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return Json(Json::value_t::discarded);
  };
  if (text.size() > format.most_bytes)
    return refuse("it has more than " + std::to_string(format.most_bytes) + " bytes");
  // The JSON library calls this function for each event of the parser. If the event opens an object or array, `depth`
  // is the number of objects and arrays around it. For other events, `depth` also counts the object or array itself.
  const auto check_depth = [](int depth, typename Json::parse_event_t event, Json&) {
    using Event = typename Json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (depth + (opens ? 1 : 0) > kMostJsonDepth) throw TooDeep();
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), check_depth, /*allow_exceptions=*/true, format.comments);
  } catch (const TooDeep&) {
    return refuse("it has more than " + std::to_string(kMostJsonDepth) + " levels");
  } catch (const typename Json::exception& error) {
    return refuse(reason_in(error.what()));
  }
}

}  // namespace

json parse_json(std::string_view text, const JsonFormat& format, std::string* why) {
  return parse_as<json>(text, format, why);
}

ordered_json parse_ordered_json(std::string_view text, const JsonFormat& format, std::string* why) {
  return parse_as<ordered_json>(text, format, why);
}

std::string json_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace collectives
