// Implementation of the rule on includes: finds uses of a name whose header is not included.
#include "packaging/house/includes.hpp"

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "packaging/house/layers.hpp"
#include "support/pattern.hpp"

namespace collectives::house {
namespace {

/// A header, and a pattern of uses of the names that it declares.
struct Header {
  std::string name;
  testing::Pattern uses;
};

const std::vector<Header>& headers() {
  static const std::vector<Header> all = [] {
    std::vector<Header> list;
    const auto add = [&](const char* name, const char* uses) { list.push_back({name, testing::Pattern(uses)}); };
    add("algorithm", R"(\bstd::(min|max|clamp|sort|find|find_if|all_of|any_of|none_of|copy|copy_n|fill|count)\()");
    add("array", R"(\bstd::array *<)");
    add("atomic", R"(\bstd::(atomic|memory_order))");
    add("chrono", R"(\bstd::chrono\b)");
    add("cstring", R"(\bstd::(memcpy|memset|memcmp|memmove|strlen|strcmp|strncmp|strerror)\b)");
    add("functional", R"(\bstd::(function *<|ref\(|invoke\b))");
    add("memory", R"(\bstd::(unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)\b)");
    add("mutex", R"(\bstd::(mutex|lock_guard|unique_lock|scoped_lock|call_once)\b)");
    add("optional", R"(\bstd::(optional|nullopt)\b)");
    add("span", R"(\bstd::(span|as_bytes|as_writable_bytes)\b)");
    add("string", R"(\bstd::(string|to_string)\b)");
    add("string_view", R"(\bstd::string_view\b)");
    add("utility", R"(\bstd::(move|exchange|swap|forward)\()");
    add("vector", R"(\bstd::vector\b)");
    add("fmt/format.h", R"(\bfmt::)");
    return list;
  }();
  return all;
}

using Files = std::map<std::string_view, const SourceFile*>;

/// Adds to `found` the headers that the file includes, by itself and through headers of the project.
void collect(const SourceFile& file, const Files& files, std::set<std::string>& visited, std::set<std::string>& found) {
  if (!visited.insert(file.path).second) return;
  for (const std::string_view line : lines_of(file.text)) {
    if (line.find("include") == line.npos) continue;  // a regular expression takes longer than this search
    const std::string header = included(line);
    if (header.size() < 2) continue;
    const std::string name = header.substr(1, header.size() - 2);
    found.insert(name);
    for (const char* const folder : {"src/", "include/"})
      if (const auto inside = files.find(folder + name); inside != files.end())
        collect(*inside->second, files, visited, found);
  }
}

void check(const SourceFile& file, const Files& files, std::vector<Finding>& findings) {
  std::set<std::string> visited, found;
  collect(file, files, visited, found);
  const std::string code = code_only(file.text);
  const auto lines = lines_of(code);
  for (const Header& header : headers()) {
    if (found.contains(header.name)) continue;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (lines[i].find("::") != lines[i].npos && header.uses.first_in(lines[i])) {
        findings.push_back({file.path, i + 1, "needs #include <" + header.name + ">"});
        break;
      }
  }
}

}  // namespace

std::vector<std::string> covered_headers() {
  std::vector<std::string> names;
  for (const Header& header : headers()) names.push_back(header.name);
  return names;
}

std::vector<Finding> missing_includes(const SourceTree& tree) {
  Files files;
  for (const SourceFile& file : tree)
    if (is_code(file.path) && is_below(file.path, {"src", "include"})) files[file.path] = &file;
  std::vector<Finding> findings;
  for (const auto& [path, file] : files)
    if (path.ends_with("pp")) check(*file, files, findings);
  return findings;
}

}  // namespace collectives::house
