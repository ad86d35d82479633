// Reader of a JSON object that comes from another rank or from a file, and may contain mistakes. Each function checks
// type and limits of one field. If the field is wrong, it throws an Error that names the source and the field, such as:
//
//   rank 3's record: "cores" is -1; it must be a whole number from 1 to 1048576
//
// The functions are not recursive, and never throw an exception of the JSON library.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/error.hpp"

namespace collectives {

class JsonRecord {
 public:
  /// Reads `object`. The texts of errors begin with `source`. Errors have the code `code`. A value that is no object
  /// counts as an object without fields.
  JsonRecord(nlohmann::json object, std::string source, Errc code = Errc::bootstrap);

  bool has(std::string_view name) const;
  /// Returns the value of a field. Throws if there is none.
  const nlohmann::json& at(std::string_view name) const;

  bool boolean(std::string_view name) const;
  std::string text(std::string_view name, std::size_t most_bytes = 4096) const;
  /// Returns the value of a field that must be a finite number from `least` to `most`.
  double number(std::string_view name, double least, double most = std::numeric_limits<double>::max()) const;
  template <std::integral T>
  T integer(std::string_view name, T least, T most) const {
    return static_cast<T>(whole(name, at(name), static_cast<std::int64_t>(least), static_cast<std::int64_t>(most)));
  }
  /// Returns the value of a field that must be a list of at most `most_items` whole numbers from `least` to `most`.
  template <std::integral T>
  std::vector<T> integers(std::string_view name, T least, T most, std::size_t most_items) const {
    std::vector<T> all;
    const std::size_t items = length(name, most_items);
    for (std::size_t i = 0; i < items; ++i)
      all.push_back(static_cast<T>(
          whole(name, item(name, i), static_cast<std::int64_t>(least), static_cast<std::int64_t>(most))));
    return all;
  }
  /// Returns the value of a field that must be a list of at most `most_items` texts, each of at most 4096 bytes.
  std::vector<std::string> texts(std::string_view name, std::size_t most_items) const;
  /// Returns a reader of a field that is an object.
  JsonRecord object(std::string_view name) const;
  /// Returns the value of a field as text for an error: a number, a boolean, or a text in quotes. Throws if the field
  /// is a list or an object. Two fields have equal values if and only if their texts are equal.
  std::string shown(std::string_view name) const;

  const std::string& source() const noexcept { return source_; }
  /// Throws an Error "SOURCE: WHY".
  [[noreturn]] void refuse(std::string_view why) const;

 private:
  JsonRecord(std::shared_ptr<const nlohmann::json>, std::string source, Errc);
  std::int64_t whole(std::string_view name, const nlohmann::json&, std::int64_t least, std::int64_t most) const;
  std::string text_of(std::string_view name, const nlohmann::json&, std::size_t most_bytes) const;
  std::size_t length(std::string_view name, std::size_t most_items) const;
  const nlohmann::json& item(std::string_view name, std::size_t index) const;
  [[noreturn]] void refuse_field(std::string_view name, const nlohmann::json&, std::string_view must_be) const;

  std::shared_ptr<const nlohmann::json> value_;
  std::string source_;
  Errc code_;
};

/// Returns a value as text for an error. A text stands in quotes and is cut to 100 bytes. The result for other values
/// is the number, "true", "false", "null", "a list" or "an object".
std::string shown_value(const nlohmann::json&);

}  // namespace collectives
