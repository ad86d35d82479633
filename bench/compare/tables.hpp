// Tables of the comparison with other libraries, the peers. A line is one collective at one number of ranks, in place
// or out of place. A cell is one size of a line. The first table, the summary, has one row per line. Each further table
// shows the cells of one line. Tables can be written as aligned text or Markdown.
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

/// Returns all tables, the summary first. If peers were also timed with their best settings, a second summary compares
/// with those, and the other tables have more columns.
std::vector<Table> tables(const std::vector<Line>&);

/// Return the table as aligned text, or as Markdown.
std::string as_text(const Table&);
std::string as_markdown(const Table&);

/// Returns a size as text, such as "8 B", "2 KiB" or "64 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace collectives::compare
