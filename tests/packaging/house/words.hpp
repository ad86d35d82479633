// Retired words: names that the project has given up for those of its field.
//
// retired_words.txt has two kinds. A coined word is found anywhere in the tree: in comments, identifiers, file names
// and documents. A private word is good English that had become a term of this project. It is found in identifiers and
// file names only. A line "allowed WORD FILE" permits a word in a file that must still read it. A word of either kind
// is found as a component of a name, as `lane` in kLaneBytes or lane_bytes. It is found in the singular or with an s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {

struct RetiredWord {
  std::string word;                     ///< word as the list has it, such as top_level
  std::vector<std::string> components;  ///< its parts, such as top and level
  bool anywhere = false;                ///< coined, not private
  std::vector<std::string> allowed_in;  ///< files that must still read it
};

/// Reads lines "coined WORD", "private WORD" and "allowed WORD FILE"; # begins a comment. Throws std::runtime_error at
/// any other line.
std::vector<RetiredWord> read_retired_words(std::string_view list);

/// Returns the parts of an identifier in lower case: "kLaneBytes_2" has k, lane, bytes and 2.
std::vector<std::string> components_of(std::string_view identifier);

struct FoundWord {
  const RetiredWord* word;
  Finding where;
};

/// Returns each place of `tree` that holds one of `words`, in the order of the files.
std::vector<FoundWord> find_words(const SourceTree& tree, const std::vector<RetiredWord>& words);

}  // namespace collectives::house
