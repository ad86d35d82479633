// Implementation of json.hpp: converts text to JSON values, and JSON values to text.
#include "base/json.hpp"

namespace collectives {

using nlohmann::json;
using nlohmann::ordered_json;

json parse_json(std::string_view text) { return json::parse(text, nullptr, /*allow_exceptions=*/false); }

json read_json_file(std::istream& file) {
  return json::parse(file, nullptr, /*allow_exceptions=*/true, /*ignore_comments=*/true);
}

ordered_json read_ordered_json_file(std::istream& file) { return ordered_json::parse(file); }

std::string json_text(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

std::string json_text(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace collectives
