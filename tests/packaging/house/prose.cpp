// Implementation of the measures of prose. Finds the paragraphs of a file, and computes the figures of its sentences.
#include "packaging/house/prose.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "support/pattern.hpp"

namespace collectives::house {
namespace {

/// Collects the lines of a paragraph. At the end of the paragraph, adds its sentences to the prose of the file.
class Paragraph {
 public:
  Paragraph(const std::string& path, Prose& prose) : path_(path), prose_(prose) {}
  ~Paragraph() { end(); }
  Paragraph(const Paragraph&) = delete;
  Paragraph& operator=(const Paragraph&) = delete;

  void add(std::size_t line, std::string_view text) {
    if (text_.empty()) line_ = line;
    (text_ += text_.empty() ? "" : " ") += text;
  }
  void end() {
    for (std::string& text : sentences_of(text_)) {
      prose_.words += count_words(text);
      prose_.sentences.push_back({path_, line_, std::move(text)});
    }
    text_.clear();
  }
  /// Ends the paragraph before a line of a table or a figure.
  void skip(std::string_view text) {
    end();
    prose_.skipped_words += count_words(text);
  }

 private:
  const std::string& path_;
  Prose& prose_;
  std::string text_;
  std::size_t line_ = 0;
};

/// Reads Markdown line by line.
class Markdown {
 public:
  explicit Markdown(Paragraph& paragraph) : paragraph_(paragraph) {}

  void read(std::size_t number, std::string_view line) {
    std::string_view text = trimmed(line);
    if (text.starts_with("```")) return toggle_fence(text.substr(3));
    if (fenced_ || text.empty() || text.starts_with("![") || text[0] == '#' || text[0] == '<')
      return fenced_as_text_ ? paragraph_.skip(text) : paragraph_.end();
    if (text[0] == '|' || line.starts_with("    ")) return paragraph_.skip(text);
    static const testing::Pattern item(R"(([-*+]|\d+\.)\s+)");
    if (const auto bullet = item.at_beginning_of(text)) {
      paragraph_.end();
      text.remove_prefix(bullet->text.size());
    }
    paragraph_.add(number, text);
  }

 private:
  /// Begins or ends a fenced block. A block that names a language is code. A block without a language may be prose, and
  /// its words count as skipped.
  void toggle_fence(std::string_view language) {
    paragraph_.end();
    fenced_ = !fenced_;
    fenced_as_text_ = fenced_ && (language.empty() || language == "text");
  }

  Paragraph& paragraph_;
  bool fenced_ = false, fenced_as_text_ = false;
};

/// Reads the comments of C, C++ and CUDA line by line.
class CodeComments {
 public:
  explicit CodeComments(Paragraph& paragraph) : paragraph_(paragraph) {}

  void read(std::size_t number, std::string_view line) {
    const std::string_view text = trimmed(line);
    if (in_block_) return read_block(number, text, "*");
    if (text.starts_with("/*")) return read_block(number, text, "/*!< ");
    if (!text.starts_with("//")) return read_behind_code(number, line);
    std::string_view comment = without_leading(text, "/!<");
    if (!comment.empty() && std::isspace(static_cast<unsigned char>(comment[0])) != 0) comment.remove_prefix(1);
    read_comment(number, comment);
  }

 private:
  static std::string_view without_leading(std::string_view text, std::string_view characters) {
    return text.substr(std::min(text.find_first_not_of(characters), text.size()));
  }
  void read_block(std::size_t number, std::string_view text, std::string_view leading) {
    in_block_ = text.find("*/") == text.npos;
    // The beginning of a comment may contain "*/", as in "/*/". It is therefore removed before the end is searched.
    const std::string_view rest = leading == "*" ? text.substr(0, text.find("*/")) : without_leading(text, leading);
    read_comment(number, trimmed(leading == "*" ? without_leading(rest, leading) : rest.substr(0, rest.find("*/"))));
  }
  void read_behind_code(std::size_t number, std::string_view line) {
    paragraph_.end();
    static const testing::Pattern comment(R"(//[/!]*<?\s(.*)$)");
    for (std::size_t at = line.find("//"); at != line.npos; at = line.find("//", at + 1)) {
      const auto match = comment.at_beginning_of(line.substr(at));
      if ((at > 0 && line[at - 1] == ':') || !match) continue;
      if (line.find('"', at) == line.npos) paragraph_.add(number, trimmed(match->group));
      return paragraph_.end();
    }
  }
  void read_comment(std::size_t number, std::string_view comment) {
    static const testing::Pattern no_prose(R"(Copyright|SPDX|clang-format|NOLINT|[-=*~ ]+$)");
    if (comment.empty() || no_prose.at_beginning_of(comment)) return paragraph_.end();
    if (comment.starts_with("  ") || comment[0] == '\t' || comment[0] == '|') return paragraph_.skip(comment);
    paragraph_.add(number, trimmed(comment));
  }

  Paragraph& paragraph_;
  bool in_block_ = false;
};

/// Reads the comments of scripts line by line.
class ScriptComments {
 public:
  explicit ScriptComments(Paragraph& paragraph) : paragraph_(paragraph) {}

  void read(std::size_t number, std::string_view line) {
    const std::string_view text = trimmed(line);
    const std::string_view comment = text.starts_with('#') && !text.starts_with("#!") ? text.substr(1) : "";
    trimmed(comment).empty() ? paragraph_.end() : paragraph_.add(number, trimmed(comment));
  }

 private:
  Paragraph& paragraph_;
};

template <typename Reader>
void read_lines(const SourceFile& file, Prose& prose) {
  Paragraph paragraph(file.path, prose);
  Reader reader(paragraph);
  const auto lines = lines_of(file.text);
  for (std::size_t i = 0; i < lines.size(); ++i) reader.read(i + 1, lines[i]);
}

bool is_script(std::string_view path) {
  for (const std::string_view end : {".sh", ".cmake", ".py", ".yml", "CMakeLists.txt"})
    if (path.ends_with(end)) return true;
  return false;
}

double percent(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

double median(std::vector<std::size_t> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return static_cast<double>(values[half] + values[values.size() % 2 == 1 ? half : half - 1]) / 2;
}

}  // namespace

void read_prose(const SourceFile& file, Prose& prose) {
  if (file.path.ends_with(".md")) return read_lines<Markdown>(file, prose);
  if (is_code(file.path)) return read_lines<CodeComments>(file, prose);
  if (is_script(file.path)) return read_lines<ScriptComments>(file, prose);
}

Prose prose_of(const SourceTree& tree, const std::vector<std::string_view>& folders) {
  const bool top_level = std::find(folders.begin(), folders.end(), "") != folders.end();
  Prose prose;
  for (const SourceFile& file : tree)
    if (file.path.find('/') == std::string::npos ? top_level : is_below(file.path, folders)) read_prose(file, prose);
  return prose;
}

Figures figures_of(const Prose& prose) {
  const std::vector<Sentence>& all = prose.sentences;
  const auto count = [&](auto test) { return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), test)); };
  std::vector<std::size_t> lengths;
  for (const Sentence& sentence : all) lengths.push_back(sentence.words());
  return {all.size(), percent(count([](const auto& s) { return s.opens_badly(); }), all.size()),
          percent(count([](const auto& s) { return s.is_long(); }), all.size()), median(std::move(lengths)),
          percent(prose.skipped_words, prose.words + prose.skipped_words)};
}

std::string worst_sentences(const Prose& prose, std::size_t count) {
  std::vector<const Sentence*> sorted;
  for (const Sentence& sentence : prose.sentences) sorted.push_back(&sentence);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->weight() > b->weight(); });
  std::string text;
  for (std::size_t i = 0; i < std::min(count, sorted.size()); ++i)
    text += fmt::format("{}:{}: {}\n", sorted[i]->path, sorted[i]->line, sorted[i]->text);
  return text;
}

}  // namespace collectives::house
