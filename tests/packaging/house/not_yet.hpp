// List of the values that exceed a limit of the project (a bar), such as the maximum number of lines of a function.
//
// not_yet.txt has a line "MEASURE SUBJECT VALUE" for each: "function_lines simulate 90". A test fails if a value is
// above its line, or if a value above its bar has no line. It also fails if a line has no value above the bar any more.
// A value can therefore only fall, and the commit that reaches the bar must remove the line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace collectives::house {

/// A value above its bar.
struct Excess {
  std::string measure;  ///< such as function_lines
  std::string subject;  ///< the function, class, file or word, without blanks
  double value = 0;
  std::string where;  ///< file and line, for the reader of a failure
};

/// Reads the lines of not_yet.txt; # begins a comment. Throws std::runtime_error at a line of another form.
std::vector<Excess> read_not_yet(std::string_view text);

/// Returns one line for each difference that fails a test. `now`: all excesses of `measures`, each subject once.
std::string differences(const std::vector<Excess>& now, const std::vector<Excess>& not_yet,
                        const std::vector<std::string_view>& measures);

/// Returns the lines of not_yet.txt for `excesses`, ordered by measure and by falling value.
std::string not_yet_lines(std::vector<Excess> excesses);

}  // namespace collectives::house
