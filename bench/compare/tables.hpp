// The report as people read it: a summary with one row for each line of cells, then every cell. One set of tables,
// written as aligned text or as Markdown.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;  ///< each as long as the head
};

/// The summary first. A second summary, and columns about best settings, when some were compared.
std::vector<Table> tables(const std::vector<Line>&);

/// Columns padded, numbers to the right.
std::string as_text(const Table&);
std::string as_markdown(const Table&);

/// "8 B", "2 KiB", "64 MiB".
std::string bytes_text(std::size_t bytes);

}  // namespace collectives::compare
