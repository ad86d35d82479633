// Implementation of not_yet.txt, the list of values that exceed a limit: reads its lines, and compares them with the
// measured values.
#include "packaging/house/not_yet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "packaging/house/source_tree.hpp"

namespace collectives::house {
namespace {

const Excess* find_like(const std::vector<Excess>& excesses, const Excess& wanted) {
  const auto found = std::find_if(excesses.begin(), excesses.end(), [&](const Excess& each) {
    return each.measure == wanted.measure && each.subject == wanted.subject;
  });
  return found == excesses.end() ? nullptr : &*found;
}

std::string line_of(const Excess& excess) {
  return fmt::format("{} {} {}", excess.measure, excess.subject, excess.value);
}

}  // namespace

std::vector<Excess> read_not_yet(std::string_view text) {
  std::vector<Excess> excesses;
  for (const std::string_view line : lines_of(text)) {
    const std::string content(trimmed(line.substr(0, line.find('#'))));
    if (content.empty()) continue;
    std::istringstream words(content);
    Excess excess;
    if (!(words >> excess.measure >> excess.subject >> excess.value) || !words.eof())
      throw std::runtime_error("not \"MEASURE SUBJECT VALUE\": " + content);
    excesses.push_back(std::move(excess));
  }
  return excesses;
}

std::string differences(const std::vector<Excess>& now, const std::vector<Excess>& not_yet,
                        const std::vector<std::string_view>& measures) {
  std::string text;
  for (const Excess& excess : now) {
    const Excess* const known = find_like(not_yet, excess);
    if (known == nullptr) text += fmt::format("above its bar: {}  {}\n", line_of(excess), excess.where);
    if (known != nullptr && excess.value > known->value)
      text += fmt::format("has grown from {}: {}  {}\n", known->value, line_of(excess), excess.where);
  }
  for (const Excess& known : not_yet) {
    const bool measured = std::find(measures.begin(), measures.end(), known.measure) != measures.end();
    if (measured && find_like(now, known) == nullptr)
      text += fmt::format("is within its bar now, strike it out of not_yet.txt: {}\n", line_of(known));
  }
  return text;
}

std::string not_yet_lines(std::vector<Excess> excesses) {
  std::stable_sort(excesses.begin(), excesses.end(), [](const Excess& a, const Excess& b) {
    return std::tie(a.measure, b.value, a.subject) < std::tie(b.measure, a.value, b.subject);
  });
  std::string text;
  for (const Excess& excess : excesses) text += line_of(excess) + "\n";
  return text;
}

}  // namespace collectives::house
