// Tables of the report: a summary with one row for each line of cells, then every cell. One set of tables is written as
// aligned text or as Markdown.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  ///< every row is as long as the head
};

/// Returns all tables, the summary first. Best settings add a second summary and further columns.
std::vector<Table> tables(const std::vector<Line>&);

/// Pads columns and aligns numbers to the right.
std::string as_text(const Table&);
std::string as_markdown(const Table&);

/// Returns "8 B", "2 KiB" or "64 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace collectives::compare
