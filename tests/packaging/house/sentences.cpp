// Implementation of the measures of prose. Cuts a paragraph into sentences, and counts their words.
#include <algorithm>
#include <cctype>

#include "packaging/house/prose.hpp"

namespace collectives::house {
namespace {

constexpr std::string_view kBadOpenings[] = {"Of",     "What",      "Whatever", "Who",     "Whoever",
                                             "Whose",  "Likewise",  "The same", "So many", "Such",
                                             "Nobody", "Everybody", "Those",    "As if",   "Else"};
constexpr std::string_view kAbbreviations[] = {"e.g.", "i.e.", "etc.", "cf.",     "vs.",
                                               "Fig.", "Sec.", "no.",  "approx.", "resp."};

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_blank(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }
bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_one_of(std::string_view set, char c) { return set.find(c) != set.npos; }

bool opens_with(std::string_view text, std::string_view opening) {
  return text.starts_with(opening) && (text.size() == opening.size() || !is_word_character(text[opening.size()]));
}

bool ends_with_abbreviation(std::string_view text) {
  return std::any_of(std::begin(kAbbreviations), std::end(kAbbreviations), [&](std::string_view each) {
    const std::size_t before = text.size() - each.size();
    return text.ends_with(each) && (text.size() == each.size() || !is_word_character(text[before - 1]));
  });
}

/// Returns the number of words that begin with a character for which `first` is true and continue while `more` is true.
template <typename First, typename More>
std::size_t count_runs(std::string_view text, First first, More more) {
  std::size_t runs = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!first(text[at])) continue;
    ++runs;
    while (at + 1 < text.size() && more(text[at + 1])) ++at;
  }
  return runs;
}

bool has_three_words(std::string_view text) {
  return count_runs(text, is_letter, [](char c) { return is_letter(c) || is_one_of("'-", c); }) >= 3;
}

/// Returns `text` with one word in place of each span in backquotes.
std::string without_spans(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '`' ? text.find('`', at + 1) : text.npos;
    plain += end == text.npos ? text.substr(at, 1) : "code";
    at = end == text.npos ? at + 1 : end + 1;
  }
  return plain;
}

/// Returns `text` with the text of each link in place of the link.
std::string without_links(std::string_view text) {
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t close = text[at] == '[' ? text.find(']', at) : text.npos;
    const bool link = close != text.npos && text.substr(close + 1).starts_with('(');
    const std::size_t end = link ? text.find(')', close) : text.npos;
    plain += end == text.npos ? text.substr(at, 1) : text.substr(at + 1, close - at - 1);
    at = end == text.npos ? at + 1 : end + 1;
  }
  return plain;
}

/// Returns the end of the sentence that begins at `at`: a full stop before blanks and a character that may begin the
/// next sentence.
std::size_t end_of_piece(std::string_view text, std::size_t at) {
  for (std::size_t i = at; i < text.size(); ++i) {
    if (!is_blank(text[i]) || i == 0 || !is_one_of(".!?", text[i - 1])) continue;
    std::size_t next = i;
    while (next < text.size() && is_blank(text[next])) ++next;
    if (next == text.size()) break;
    const char c = text[next];
    if (std::isupper(static_cast<unsigned char>(c)) != 0 || std::isdigit(static_cast<unsigned char>(c)) != 0 ||
        is_one_of("`\"[(", c))
      return i;
  }
  return text.size();
}

}  // namespace

std::size_t count_words(std::string_view text) {
  return count_runs(text, is_word_character, [](char c) { return is_word_character(c) || is_one_of("'./:+-", c); });
}

std::vector<std::string> sentences_of(std::string_view paragraph) {
  const std::string text = without_links(without_spans(paragraph));
  std::vector<std::string> sentences;
  std::string part;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_piece(text, at);
    (part += part.empty() ? "" : " ") += trimmed(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (ends_with_abbreviation(part) && at < text.size()) continue;
    if (has_three_words(part)) sentences.push_back(part);
    part.clear();
  }
  return sentences;
}

std::size_t Sentence::words() const { return count_words(text); }

bool Sentence::opens_badly() const {
  return std::any_of(std::begin(kBadOpenings), std::end(kBadOpenings),
                     [&](std::string_view each) { return opens_with(text, each); });
}

std::size_t Sentence::weight() const {
  const auto marks = std::count_if(text.begin(), text.end(), [](char c) { return is_one_of(";:()", c); });
  return words() + (opens_badly() ? 15 : 0) + 4 * static_cast<std::size_t>(marks);
}

}  // namespace collectives::house
