// Implementation of JsonRecord, a reader of a JSON object that comes from another rank or from a file. The object may
// contain mistakes. Each function checks the type and the limits of one field, and returns its value. If the field is
// missing or wrong, the function throws an Error that names the source and the field.
#include "base/json_record.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.hpp"

namespace collectives {

using nlohmann::json;

std::string shown_value(const json& value) {
  switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::boolean: return value.get<bool>() ? "true" : "false";
    case json::value_t::number_integer: return fmt::format("{}", value.get<std::int64_t>());
    case json::value_t::number_unsigned: return fmt::format("{}", value.get<std::uint64_t>());
    case json::value_t::number_float: return fmt::format("{}", value.get<double>());
    case json::value_t::string: return fmt::format("\"{}\"", printable_text(value.get_ref<const std::string&>(), 100));
    case json::value_t::array: return "a list";
    case json::value_t::object: return "an object";
    default: return "no value";
  }
}

JsonRecord::JsonRecord(json object, std::string source, Errc code)
    : JsonRecord(std::make_shared<const json>(object.is_object() ? std::move(object) : json::object()),
                 std::move(source), code) {}

JsonRecord::JsonRecord(std::shared_ptr<const json> value, std::string source, Errc code)
    : value_(std::move(value)), source_(std::move(source)), code_(code) {}

void JsonRecord::refuse(std::string_view why) const { throw Error(code_, fmt::format("{}: {}", source_, why)); }

void JsonRecord::refuse_field(std::string_view name, const json& value, std::string_view must_be) const {
  refuse(fmt::format("\"{}\" is {}; it must be {}", name, shown_value(value), must_be));
}

bool JsonRecord::has(std::string_view name) const { return value_->contains(std::string(name)); }

const json& JsonRecord::at(std::string_view name) const {
  const auto found = value_->find(std::string(name));
  if (found == value_->end()) refuse(fmt::format("\"{}\" is missing", name));
  return *found;
}

bool JsonRecord::boolean(std::string_view name) const {
  const json& value = at(name);
  if (!value.is_boolean()) refuse_field(name, value, "true or false");
  return value.get<bool>();
}

std::string JsonRecord::text_of(std::string_view name, const json& value, std::size_t most_bytes) const {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most_bytes)
    refuse_field(name, value, fmt::format("a text of at most {} bytes", most_bytes));
  return value.get<std::string>();
}

std::string JsonRecord::text(std::string_view name, std::size_t most_bytes) const {
  return text_of(name, at(name), most_bytes);
}

double JsonRecord::number(std::string_view name, double least, double most) const {
  const json& value = at(name);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(std::isfinite(number) && number >= least && number <= most))
    refuse_field(name, value,
                 most == std::numeric_limits<double>::max() ? fmt::format("a number of at least {}", least)
                                                            : fmt::format("a number from {} to {}", least, most));
  return number;
}

std::int64_t JsonRecord::whole(std::string_view name, const json& value, std::int64_t least, std::int64_t most) const {
  const bool fits =
      value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX} : value.is_number_integer();
  const std::int64_t number = fits ? value.get<std::int64_t>() : 0;
  if (!fits || number < least || number > most)
    refuse_field(name, value, fmt::format("a whole number from {} to {}", least, most));
  return number;
}

std::size_t JsonRecord::length(std::string_view name, std::size_t most_items) const {
  const json& value = at(name);
  if (!value.is_array() || value.size() > most_items)
    refuse_field(name, value, fmt::format("a list of at most {} items", most_items));
  return value.size();
}

const json& JsonRecord::item(std::string_view name, std::size_t index) const { return at(name)[index]; }

std::vector<std::string> JsonRecord::texts(std::string_view name, std::size_t most_items) const {
  std::vector<std::string> all;
  const std::size_t items = length(name, most_items);
  for (std::size_t i = 0; i < items; ++i) all.push_back(text_of(name, item(name, i), 4096));
  return all;
}

JsonRecord JsonRecord::object(std::string_view name) const {
  const json& value = at(name);
  if (!value.is_object()) refuse_field(name, value, "an object");
  return {std::shared_ptr<const json>(value_, &value), fmt::format("{}: \"{}\"", source_, name), code_};
}

std::string JsonRecord::shown(std::string_view name) const {
  const json& value = at(name);
  if (value.is_structured()) refuse_field(name, value, "a number, a boolean or a text");
  return shown_value(value);
}

}  // namespace collectives
