// Implementation of regular expressions for tests, on std::regex.
#include "support/pattern.hpp"

#include <iterator>
#include <regex>

namespace collectives::testing {
namespace {

Match match_of(const std::cmatch& match) {
  const auto part = [&](std::size_t group) {
    return std::string_view(match[group].first, static_cast<std::size_t>(match.length(group)));
  };
  return {part(0), match.size() > 1 ? part(1) : std::string_view()};
}

std::optional<Match> search(std::string_view text, const std::regex& regex,
                            std::regex_constants::match_flag_type flags) {
  std::cmatch match;
  if (!std::regex_search(text.data(), text.data() + text.size(), match, regex, flags)) return std::nullopt;
  return match_of(match);
}

}  // namespace

struct Pattern::Compiled {
  std::regex regex;
};

Pattern::Pattern(const std::string& expression)
    : compiled_(std::make_shared<const Compiled>(Compiled{std::regex(expression)})) {}

std::optional<Match> Pattern::first_in(std::string_view text) const {
  return search(text, compiled_->regex, std::regex_constants::match_default);
}

std::optional<Match> Pattern::at_beginning_of(std::string_view text) const {
  return search(text, compiled_->regex, std::regex_constants::match_continuous);
}

std::vector<Match> Pattern::all_in(std::string_view text) const {
  std::vector<Match> matches;
  for (std::cregex_iterator next(text.data(), text.data() + text.size(), compiled_->regex), end; next != end; ++next)
    matches.push_back(match_of(*next));
  return matches;
}

std::string Pattern::removed_from(std::string_view text) const {
  std::string rest;
  std::size_t at = 0;
  for (const Match& match : all_in(text)) {
    const auto begin = static_cast<std::size_t>(match.text.data() - text.data());
    rest += text.substr(at, begin - at);
    at = begin + match.text.size();
  }
  return rest += text.substr(at);
}

}  // namespace collectives::testing
