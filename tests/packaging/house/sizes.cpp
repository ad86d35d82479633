// Implementation of the check of sizes: measures functions, classes, files and documents, and returns those above their
// limits.
#include "packaging/house/sizes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>

#include "base/json.hpp"
#include "support/pattern.hpp"

namespace collectives::house {
namespace {

constexpr std::size_t kFunctionLines = 60, kCppLines = 500, kReadmeLines = 150, kTestLines = 700, kCMakeLines = 60;
constexpr std::size_t kDesignWords = 2'000, kResultsLines = 1'500, kClassFunctions = 30, kWideClasses = 5;
constexpr std::string_view kReason = "More than 30 functions:";

/// A class that grew too wide in the past, with its own maximum numbers of functions and members.
struct NarrowClass {
  std::string_view name;
  std::size_t functions, members;
};
constexpr NarrowClass kNarrowClasses[] = {
    {"Communicator::Impl", 25, 12}, {"Executor", 30, 100},        {"SparseTensor", 30, 100}, {"TopKOperation", 30, 100},
    {"TcpTransport", 30, 100},      {"FailureDetector", 30, 100}, {"Watch", 30, 100}};

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), [](FILE* p) { return ::pclose(p); });
  std::string output;
  std::array<char, 4096> buffer;
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe.get()))
    output.append(buffer.data(), count);
  return output;
}

/// Returns a qualified name without the namespace of the library, and without the numbers that ctags gives to
/// namespaces and lambdas that have no name.
std::string short_name(const std::string& name) {
  static const testing::Pattern unnamed("^collectives::|__anon[0-9a-f]+(::)?");
  std::string text = unnamed.removed_from(name);
  std::replace(text.begin(), text.end(), ' ', '_');  // operator bool
  return text;
}

std::string place_of(const Tag& tag) { return fmt::format("{}:{}", tag.path, tag.line); }

/// Adds an excess. If its subject has one of the same measure, the greater value stays.
void add(std::vector<Excess>& excesses, Excess excess) {
  for (Excess& each : excesses)
    if (each.measure == excess.measure && each.subject == excess.subject) {
      if (each.value < excess.value) each = std::move(excess);
      return;
    }
  excesses.push_back(std::move(excess));
}

void add_if_above(std::vector<Excess>& excesses, const char* measure, const std::string& subject, std::size_t value,
                  std::size_t bar, const std::string& where) {
  if (value > bar) add(excesses, {measure, subject, static_cast<double>(value), where});
}

bool is_class(const Tag& tag) { return tag.kind == "class" || tag.kind == "struct"; }

/// Returns the number of names in the body of class `type` whose kind, as ctags prints it, is one of `kinds`.
std::size_t count_in(const Tag& type, const std::vector<Tag>& tags, std::initializer_list<std::string_view> kinds) {
  return static_cast<std::size_t>(std::count_if(tags.begin(), tags.end(), [&](const Tag& tag) {
    return tag.path == type.path && tag.line >= type.line && tag.line <= type.end && tag.scope == type.qualified() &&
           std::find(kinds.begin(), kinds.end(), tag.kind) != kinds.end();
  }));
}

/// Returns true if the comment right above `line` (or above the template line there) gives the reason for a wide class.
bool has_reason(const SourceTree& tree, const Tag& type) {
  const SourceFile* const file = find_file(tree, type.path);
  if (file == nullptr) return false;
  const auto lines = lines_of(file->text);
  std::size_t above = type.line - 1;
  if (above > 0 && trimmed(lines[above - 1]).starts_with("template")) --above;
  for (; above > 0 && trimmed(lines[above - 1]).starts_with("//"); --above)
    if (lines[above - 1].find(kReason) != std::string_view::npos) return true;
  return false;
}

const NarrowClass* narrow_class(const std::string& name) {
  for (const NarrowClass& each : kNarrowClasses)
    if (name == each.name) return &each;
  return nullptr;
}

std::size_t words_in(std::string_view text) {
  std::size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool blank = trimmed({&c, 1}).empty();
    words += !blank && !inside ? 1 : 0;
    inside = !blank;
  }
  return words;
}

}  // namespace

std::vector<Tag> run_ctags(const std::string& ctags, const std::filesystem::path& root, const std::string& paths) {
  const std::string output = output_of(fmt::format(
      "cd '{}' && '{}' --quiet --options=NONE --output-format=json --fields=+neKZ --languages=C,C++,CUDA --kinds-C=+p "
      "--kinds-C++=+p --kinds-CUDA=+p -R -o - {}",
      root.string(), ctags, paths));
  if (output.empty()) throw std::runtime_error("universal-ctags is missing: scripts/install_packages.sh installs it");
  std::vector<Tag> tags;
  for (const std::string_view line : lines_of(output)) {
    const auto json = parse_json(line);
    if (json.at("_type") != "tag") continue;
    tags.push_back({json.at("path"), json.at("name"), json.at("kind"), json.value("scope", ""), json.at("line"),
                    json.value("end", std::size_t{0})});
  }
  return tags;
}

std::vector<Excess> long_functions(const std::vector<Tag>& tags) {
  std::vector<Excess> excesses;
  for (const Tag& tag : tags)
    if (tag.kind == "function" && tag.end != 0 && is_below(tag.path, {"src", "tools"}))
      add_if_above(excesses, "function_lines", short_name(tag.qualified()), tag.end - tag.line + 1, kFunctionLines,
                   place_of(tag));
  return excesses;
}

std::vector<Excess> wide_classes(const std::vector<Tag>& tags, const SourceTree& tree) {
  std::vector<Excess> excesses;
  std::size_t wide = 0;
  for (const Tag& type : tags) {
    if (!is_class(type)) continue;
    const std::string name = short_name(type.qualified());
    const std::size_t functions = count_in(type, tags, {"function", "prototype"});
    const NarrowClass* const narrow = narrow_class(name);
    if (narrow != nullptr)
      add_if_above(excesses, "class_members", name, count_in(type, tags, {"member"}), narrow->members, place_of(type));
    const bool excused = narrow == nullptr && has_reason(tree, type);
    wide += functions > kClassFunctions ? 1 : 0;
    if (!excused)
      add_if_above(excesses, "class_functions", name, functions,
                   narrow != nullptr ? narrow->functions : kClassFunctions, place_of(type));
  }
  add_if_above(excesses, "wide_classes", "all", wide, kWideClasses, "");
  return excesses;
}

std::vector<Excess> long_files(const SourceTree& tree) {
  std::vector<Excess> excesses;
  std::size_t results = 0;
  for (const SourceFile& file : tree) {
    const std::string& path = file.path;
    const std::size_t lines = lines_of(file.text).size();
    const bool source = is_below(path, {"src", "tools"}) && path.ends_with(".cpp");
    const bool cmake = path.ends_with("CMakeLists.txt"), test = is_below(path, {"tests"});
    if (source) add_if_above(excesses, "cpp_lines", path, lines, kCppLines, path);
    if (path == "README.md") add_if_above(excesses, "document_lines", path, lines, kReadmeLines, path);
    if (path == "DESIGN.md") add_if_above(excesses, "document_words", path, words_in(file.text), kDesignWords, path);
    if (test && is_code(path)) add_if_above(excesses, "test_lines", path, lines, kTestLines, path);
    if (test && cmake) add_if_above(excesses, "cmake_lines", path, lines, kCMakeLines, path);
    if (is_below(path, {"bench/results"})) results += lines;
  }
  add_if_above(excesses, "results_lines", "bench/results", results, kResultsLines, "");
  return excesses;
}

}  // namespace collectives::house
