// Conversion between JSON values and text. A source file that calls the parser or the serializer of the JSON library
// takes five seconds longer to compile. Therefore only json.cpp calls them.
//
// A text may come from another rank or from a file that others can write. The parser therefore refuses a text that is
// too long, or that has too many levels of nested values. The serializer and the comparison of the JSON library are
// recursive, and deep values could exhaust the stack. They therefore get only values from this parser or from this
// process. No function of this file throws an exception of the JSON library.
#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace collectives {

/// Maximum number of levels of nested values in a text. The records, tuning files and checkpoints of the library have
/// at most 6 levels.
inline constexpr int kMostJsonDepth = 16;

/// Maximum length in bytes of the text of a record that a rank sends to the other ranks. A rank with 4096 cores and the
/// address of a UCX wire sends 25 KB.
inline constexpr std::size_t kMostRecordBytes = std::size_t{64} << 10;

/// Maximum length in bytes of a file with tuning numbers. The parsed values take up to 30 times as much memory as the
/// text.
inline constexpr std::size_t kMostTuningBytes = std::size_t{1} << 20;

struct JsonFormat {
  std::size_t most_bytes = std::numeric_limits<std::size_t>::max();
  bool comments = false;  ///< comments as in C++ are allowed
};

/// Returns the value in `text`, or a value with is_discarded() if `text` is no JSON, too long or too deep. `why` then
/// gets the reason, with the line and the column.
nlohmann::json parse_json(std::string_view text, const JsonFormat& format = {}, std::string* why = nullptr);

/// Returns the value like parse_json(). Members of objects stay in the order of the text.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const JsonFormat& format = {},
                                          std::string* why = nullptr);

/// Returns `value` as text on one line. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);

/// Returns `value` as text: on one line, or indented by `indent` columns for each level. Bytes that are not UTF-8
/// become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

}  // namespace collectives
