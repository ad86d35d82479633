// Implementation of the list of the repository's files: reads them, and separates code from comments and strings.
#include "packaging/house/source_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace collectives::house {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolders[] = {"include", "src",   "tools", "tests", "bench", "python_free_examples",
                                         "scripts", "cmake", "docs"};

void add_file(SourceTree& tree, const fs::path& root, const fs::path& path) {
  std::string text = read_file(path);
  if (text.find('\0') == text.npos) tree.push_back({path.lexically_relative(root).generic_string(), std::move(text)});
}

void add_folder(SourceTree& tree, const fs::path& root, const fs::path& folder) {
  for (auto entry = fs::recursive_directory_iterator(folder); entry != fs::recursive_directory_iterator(); ++entry) {
    if (entry->is_directory() && entry->path().filename() == "build") entry.disable_recursion_pending();
    if (entry->is_regular_file()) add_file(tree, root, entry->path());
  }
}

/// Returns the position after the string or character that begins at `at` with a quotation mark.
std::size_t after_quoted(std::string_view text, std::size_t at) {
  const char quote = text[at];
  for (++at; at < text.size() && text[at] != quote && text[at] != '\n'; ++at) at += text[at] == '\\' ? 1u : 0u;
  return std::min(at + 1, text.size());
}

/// Returns the position after the first `end` at or after `at`.
std::size_t after(std::string_view text, std::size_t at, std::string_view end) {
  const std::size_t found = text.find(end, at);
  return found == text.npos ? text.size() : found + end.size();
}

/// Returns the position after the raw string whose quotation mark is at `at`.
std::size_t after_raw_string(std::string_view text, std::size_t at) {
  const std::size_t open = text.find('(', at);
  if (open == text.npos) return text.size();
  return after(text, open, fmt::format("){}\"", text.substr(at + 1, open - at - 1)));
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns the end of the comment, string or character that begins at `at`, or `at` if none begins there.
std::size_t after_non_code(std::string_view text, std::size_t at) {
  const std::string_view rest = text.substr(at);
  const char before = at == 0 ? ' ' : text[at - 1];
  if (rest.starts_with("//")) return std::min(text.find('\n', at), text.size());
  if (rest.starts_with("/*")) return after(text, at + 2, "*/");
  if (rest[0] == '"') return before == 'R' ? after_raw_string(text, at) : after_quoted(text, at);
  return rest[0] == '\'' && !is_word(before) ? after_quoted(text, at) : at;  // a word before: 1'000
}

}  // namespace

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

SourceTree read_source_tree(const fs::path& root) {
  SourceTree tree;
  for (const std::string_view folder : kFolders)
    if (fs::exists(root / folder)) add_folder(tree, root, root / folder);
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.path().extension() == ".md") add_file(tree, root, entry.path());
  std::sort(tree.begin(), tree.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return tree;
}

const SourceFile* find_file(const SourceTree& tree, std::string_view path) {
  const auto found = std::find_if(tree.begin(), tree.end(), [&](const auto& file) { return file.path == path; });
  return found == tree.end() ? nullptr : &*found;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  const std::size_t first = text.find_first_not_of(kBlanks);
  return first == text.npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_code(std::string_view path) {
  constexpr std::string_view kExtensions[] = {".c", ".h", ".cc", ".hh", ".cpp", ".hpp", ".cu", ".cuh"};
  const std::string_view extension = path.substr(std::min(path.rfind('.'), path.size()));
  return std::find(std::begin(kExtensions), std::end(kExtensions), extension) != std::end(kExtensions);
}

bool is_below(std::string_view path, const std::vector<std::string_view>& folders) {
  return std::any_of(folders.begin(), folders.end(), [&](std::string_view folder) {
    return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
  });
}

std::string code_only(std::string_view text) {
  std::string code(text);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = after_non_code(text, at);
    for (std::size_t i = at; i < end; ++i)
      if (code[i] != '\n') code[i] = ' ';
    at = std::max(end, at + 1);
  }
  return code;
}

std::string to_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const auto& [path, line, what] : findings)
    text += line == 0 ? fmt::format("{}: {}\n", path, what) : fmt::format("{}:{}: {}\n", path, line, what);
  return text;
}

}  // namespace collectives::house
