// Tables of the comparison. A line is one collective at one number of ranks, in place or out of place. A cell is one
// size of a line. The first table has one row for each line. Each further table has the cells of one line. All
// tables are written as aligned text and as Markdown.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  ///< every row has as many fields as the head
};

/// Returns all tables, the summary first. If peers were also timed with their best settings, there is a second summary,
/// and tables have more columns.
std::vector<Table> tables(const std::vector<Line>&);

/// Pads columns and aligns numbers to the right.
std::string as_text(const Table&);
std::string as_markdown(const Table&);

/// Returns "8 B", "2 KiB" or "64 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace collectives::compare
