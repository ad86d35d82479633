// Conversion between JSON values and text. A source that calls the parser or the serializer of the JSON library takes
// five seconds longer to compile. In the library, only json.cpp therefore calls them.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace collectives {

/// Returns the value in `text`, or a value with is_discarded() if `text` is no JSON.
nlohmann::json parse_json(std::string_view text);

/// Returns the value in a file, which may have comments. Throws std::exception, whose text has the line and the column,
/// if the file is no JSON.
nlohmann::json read_json_file(std::istream& file);

/// Returns the value in a file without comments. Members of objects stay in the order of the file. Throws as
/// read_json_file() does.
nlohmann::ordered_json read_ordered_json_file(std::istream& file);

/// Returns `value` as text on one line. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);

/// Returns `value` as text: on one line, or indented by `indent` columns for each level. Bytes that are not UTF-8
/// become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace collectives
