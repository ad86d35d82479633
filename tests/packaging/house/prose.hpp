// Measures prose: how long the sentences of comments and documents are, and how they open.
//
// The prose of a file is cut into paragraphs, and a paragraph into sentences of three words or more:
//
//   C, C++, CUDA   runs of comment lines; a comment behind code is a paragraph of its own
//   scripts        runs of lines that begin with #, in shell, CMake, Python and YAML
//   Markdown       runs of lines and items of lists; no headings, no tables, no blocks of code
//
// Tables and indented lines are not sentences. Their words count as skipped, so that no text hides there.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {

struct Sentence {
  std::string path;
  std::size_t line = 0;  ///< number of the first line of its paragraph
  std::string text;

  std::size_t words() const;
  bool is_long() const { return words() > 25; }
  /// Returns true if it opens with a genitive, a free relative or an ellipsis: "Of", "What", "Likewise", "The same" ...
  bool opens_badly() const;
  /// Returns how hard it reads: its words, 15 for a bad opening, 4 for each of ; : ( and ).
  std::size_t weight() const;
};

struct Prose {
  std::vector<Sentence> sentences;
  std::size_t words = 0;          ///< number of words in sentences
  std::size_t skipped_words = 0;  ///< number of words in tables and indented lines
};

/// Figures of some prose. Shares are percentages of its sentences. The share of skipped text is a percentage of its
/// words.
struct Figures {
  std::size_t sentences = 0;
  double openings = 0, long_sentences = 0, median_words = 0, skipped = 0;
};

/// Adds the prose of `file` to `prose`. Files of other kinds have none.
void read_prose(const SourceFile& file, Prose& prose);

/// Returns the prose of the files of `tree` below one of `folders`. An empty folder stands for Markdown at the top
/// level.
Prose prose_of(const SourceTree& tree, const std::vector<std::string_view>& folders);

Figures figures_of(const Prose& prose);

/// Returns one line for each of the `count` sentences that read worst.
std::string worst_sentences(const Prose& prose, std::size_t count);

/// Returns the words of `text`: runs that begin with a letter, a digit or _ and go on with those or one of './:+-
std::size_t count_words(std::string_view text);

/// Returns the sentences of a paragraph. Spans in backquotes count as one word, links as their text.
std::vector<std::string> sentences_of(std::string_view paragraph);

}  // namespace collectives::house
