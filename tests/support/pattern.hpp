// Regular expressions for tests. A source that includes <regex> takes 4 s more to compile, so pattern.cpp alone does.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace collectives::testing {

/// Part of a text that a pattern matches. Both members are views of that text.
struct Match {
  std::string_view text;
  std::string_view group;  ///< part that the first group of the pattern matches; empty if the pattern has no group
};

/// Regular expression in the grammar of ECMAScript, as std::regex reads it.
class Pattern {
 public:
  /// Throws std::regex_error if `expression` is not a regular expression.
  explicit Pattern(const std::string& expression);

  /// Returns the first match in `text`.
  std::optional<Match> first_in(std::string_view text) const;

  /// Returns the match that begins where `text` begins.
  std::optional<Match> at_beginning_of(std::string_view text) const;

  /// Returns all matches in `text`, which do not overlap.
  std::vector<Match> all_in(std::string_view text) const;

  /// Returns `text` without its matches.
  std::string removed_from(std::string_view text) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace collectives::testing
