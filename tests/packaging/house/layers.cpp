// Implementation of the check of layers: reads layers.txt and the include lines.
#include "packaging/house/layers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "support/pattern.hpp"

namespace collectives::house {
namespace {

std::vector<std::string_view> folders_of(std::string_view level) {
  std::vector<std::string_view> folders;
  for (std::size_t at = 0; at <= level.size();) {
    const std::size_t comma = std::min(level.find(',', at), level.size());
    folders.push_back(trimmed(level.substr(at, comma - at)));
    at = comma + 1;
  }
  return folders;
}

/// Returns the path of a file as layers.txt writes paths: relative to src/, or with tools/ at its beginning.
std::string_view path_in_layers(std::string_view path) { return path.starts_with("src/") ? path.substr(4) : path; }

/// Returns why the file of `layer` must not have this include, or an empty text.
std::string fault_of_include(const Layer& layer, const std::string& header, const Layers& layers) {
  if (!header.starts_with('"') || header.starts_with("\"collectives/")) return "";
  const Layer* const to = layers.of(std::string_view(header).substr(1));
  if (to == nullptr) return fmt::format("includes {}: no layer; includes are written relative to src/", header);
  if (may_include(layer, *to)) return "";
  return fmt::format("includes {}: {} is not below {}", header, to->folder, layer.folder);
}

void check_file(const SourceFile& file, const Layers& layers, std::vector<Finding>& faults) {
  const Layer* const layer = layers.of(path_in_layers(file.path));
  if (layer == nullptr) return faults.push_back({file.path, 0, "lies in no folder of layers.txt"});
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (const std::string why = fault_of_include(*layer, included(lines[i]), layers); !why.empty())
      faults.push_back({file.path, i + 1, why});
}

}  // namespace

Layers::Layers(std::string_view list) {
  std::size_t level = 0;
  for (const std::string_view line : lines_of(list)) {
    if (trimmed(line).empty() || line.starts_with('#')) continue;
    for (const std::string_view folder : folders_of(line)) layers_.push_back({std::string(folder), level});
    ++level;
  }
}

const Layer* Layers::of(std::string_view path) const {
  const Layer* longest = nullptr;
  for (const Layer& layer : layers_)
    if (is_below(path, {layer.folder}) && (longest == nullptr || layer.folder.size() > longest->folder.size()))
      longest = &layer;
  return longest;
}

std::vector<std::string> Layers::from_the_top() const {
  std::vector<std::string> levels;
  for (const Layer& layer : layers_) {
    if (layer.level == levels.size()) levels.emplace_back();
    levels.back() += (levels.back().empty() ? "" : ", ") + layer.folder;
  }
  std::reverse(levels.begin(), levels.end());
  return levels;
}

bool may_include(const Layer& from, const Layer& to) { return to.level < from.level || to.folder == from.folder; }

std::string included(std::string_view line) {
  static const testing::Pattern pattern(R"(\s*#\s*include\s*(["<][^">]*[">]).*$)");
  const auto match = pattern.at_beginning_of(line);
  return match ? std::string(match->group) : "";
}

std::vector<Finding> order_faults(const SourceTree& tree, const Layers& layers) {
  std::vector<Finding> faults;
  for (const SourceFile& file : tree)
    if (is_code(file.path) && is_below(file.path, {"src", "tools"})) check_file(file, layers, faults);
  return faults;
}

std::vector<std::string> pictured_levels(std::string_view svg, const Layers& layers) {
  static const testing::Pattern element("<text[^>]*>([^<]*)</text>");
  std::vector<std::string> levels;
  for (const testing::Match& match : element.all_in(svg)) {
    const auto names = folders_of(match.group);
    const bool only_layers = std::all_of(names.begin(), names.end(), [&](std::string_view name) {
      return std::any_of(layers.all().begin(), layers.all().end(), [&](const auto& l) { return l.folder == name; });
    });
    if (only_layers) levels.emplace_back(match.group);
  }
  return levels;
}

}  // namespace collectives::house
