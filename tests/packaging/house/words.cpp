// Implementation of the search for retired words, names that the project has given up.
#include "packaging/house/words.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>

namespace collectives::house {
namespace {

/// Files that may contain retired words: two that tell users of renamed names, the list of these words, and
/// not_yet.txt.
constexpr std::string_view kExempt[] = {"CHANGES.md", "docs/porting.md", "tests/packaging/house/retired_words.txt",
                                        "tests/packaging/house/not_yet.txt"};

bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool is_lower(char c) { return std::islower(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

/// Returns true if a component begins at `at`, which is not the first character of `name`.
bool begins_component(std::string_view name, std::size_t at) {
  const char before = name[at - 1], here = name[at];
  if (is_digit(before) != is_digit(here)) return true;
  if (!is_upper(here)) return false;
  return is_lower(before) || (at + 1 < name.size() && is_lower(name[at + 1]));
}

using Words = std::multimap<std::string, const RetiredWord*>;  // key: the first component of the word

Words by_first_component(const std::vector<RetiredWord>& words, bool in_identifiers) {
  Words sorted;
  for (const RetiredWord& each : words) {
    if (!each.anywhere && !in_identifiers) continue;
    sorted.emplace(each.components.front(), &each);
    if (each.components.size() == 1) sorted.emplace(each.components.front() + "s", &each);
  }
  return sorted;
}

/// Returns true if `name` has the components of `word` from `at` on. The last one may have an s at its end.
bool holds_at(const std::vector<std::string>& name, std::size_t at, const RetiredWord& word) {
  const std::size_t count = word.components.size();
  if (at + count > name.size()) return false;
  for (std::size_t i = 0; i < count; ++i) {
    const bool plural = i + 1 == count && name[at + i] == word.components[i] + "s";
    if (name[at + i] != word.components[i] && !plural) return false;
  }
  return true;
}

/// Adds the retired words that the names of `text` hold. A name is a run of letters, digits and `joints`.
void search(std::string_view text, std::string_view joints, const Words& words, const Finding& where,
            std::vector<FoundWord>& found) {
  const auto in_name = [&](char c) { return is_alnum(c) || joints.find(c) != joints.npos; };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_name(text[end])) ++end;
    const std::vector<std::string> name = components_of(text.substr(at, end - at));
    for (std::size_t i = 0; i < name.size(); ++i)
      for (auto [next, last] = words.equal_range(name[i]); next != last; ++next)
        if (holds_at(name, i, *next->second)) found.push_back({next->second, where});
    at = end + 1;
  }
}

/// Returns the names in a line of a script or of CMake: those with an underscore, after a $, or ahead of an =.
std::string script_names(std::string_view line) {
  std::string names;
  if (trimmed(line).starts_with('#')) return names;
  for (std::size_t at = 0, end; at < line.size(); at = end + 1) {
    end = at;
    while (end < line.size() && (is_alnum(line[end]) || line[end] == '_')) ++end;
    const std::string_view name = line.substr(at, end - at), before = line.substr(0, at);
    const bool expanded = before.ends_with('$') || before.ends_with("${");
    const bool assigned = end < line.size() && line[end] == '=';
    if (expanded || assigned || name.find('_') != name.npos) (names += name) += ' ';
  }
  return names;
}

bool is_script(std::string_view path) {
  return path.ends_with(".sh") || path.ends_with(".cmake") || path.ends_with(".awk") ||
         path.ends_with("CMakeLists.txt");
}

/// Returns the lines of `file` with identifiers only. Includes are left out: they are found as file names.
std::vector<std::string> identifier_lines(const SourceFile& file) {
  std::vector<std::string> lines;
  const std::string code = is_code(file.path) ? code_only(file.text) : is_script(file.path) ? file.text : "";
  for (const std::string_view line : lines_of(code)) {
    const bool include = is_code(file.path) && trimmed(line).starts_with("#include");
    lines.push_back(is_script(file.path) ? script_names(line) : include ? std::string() : std::string(line));
  }
  return lines;
}

/// Permits `word`, which an earlier line of the list retires, in `file`.
void allow(std::vector<RetiredWord>& words, const std::string& word, const std::string& file) {
  const auto known =
      std::find_if(words.begin(), words.end(), [&](const RetiredWord& each) { return each.word == word; });
  if (known == words.end()) throw std::runtime_error("allowed before it is retired: " + word);
  known->allowed_in.push_back(file);
}

bool is_allowed(const FoundWord& found) {
  const auto& files = found.word->allowed_in;
  return std::find(files.begin(), files.end(), found.where.path) != files.end();
}

/// Appends the words of `more` that `found` does not have from position `first` on, which holds the words of the same
/// line.
void add_new(std::vector<FoundWord>& found, std::size_t first, std::vector<FoundWord> more) {
  std::set<std::pair<const RetiredWord*, std::size_t>> known;
  for (std::size_t i = first; i < found.size(); ++i) known.emplace(found[i].word, found[i].where.line);
  for (FoundWord& each : more)
    if (!is_allowed(each) && known.emplace(each.word, each.where.line).second) found.push_back(std::move(each));
}

}  // namespace

std::vector<std::string> components_of(std::string_view identifier) {
  std::vector<std::string> components;
  bool open = false;
  for (std::size_t i = 0; i < identifier.size(); ++i) {
    const bool part = is_alnum(identifier[i]);
    if (part && (!open || begins_component(identifier, i))) components.emplace_back();
    if (part) components.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(identifier[i])));
    open = part;
  }
  return components;
}

std::vector<RetiredWord> read_retired_words(std::string_view list) {
  std::vector<RetiredWord> words;
  for (const std::string_view line : lines_of(list)) {
    std::istringstream text(std::string(line.substr(0, line.find('#'))));
    std::string kind, word, file;
    if (!(text >> kind)) continue;
    text >> word >> file;
    const bool allows = kind == "allowed";
    if ((kind != "coined" && kind != "private" && !allows) || components_of(word).empty() || file.empty() == allows)
      throw std::runtime_error("not \"coined WORD\", \"private WORD\" or \"allowed WORD FILE\": " + std::string(line));
    if (allows)
      allow(words, word, file);
    else
      words.push_back({word, components_of(word), kind == "coined", {}});
  }
  return words;
}

std::vector<FoundWord> find_words(const SourceTree& tree, const std::vector<RetiredWord>& words) {
  const Words coined = by_first_component(words, false), all = by_first_component(words, true);
  std::vector<FoundWord> found;
  for (const SourceFile& file : tree) {
    if (std::find(std::begin(kExempt), std::end(kExempt), file.path) != std::end(kExempt)) continue;
    const std::size_t first = found.size();
    std::vector<FoundWord> more;
    search(file.path, "_-", all, {file.path, 0, "the name of the file"}, more);
    const auto lines = lines_of(file.text);
    for (std::size_t i = 0; i < lines.size(); ++i)
      search(lines[i], "_", coined, {file.path, i + 1, std::string(trimmed(lines[i]))}, more);
    const auto identifiers = identifier_lines(file);
    for (std::size_t i = 0; i < identifiers.size(); ++i)
      search(identifiers[i], "_", all, {file.path, i + 1, std::string(trimmed(lines[i]))}, more);
    add_new(found, first, std::move(more));
  }
  return found;
}

}  // namespace collectives::house
