// Plot of the report. Each collective has a column with the times of all contenders above and the ratios with their
// intervals below.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

/// Returns a gnuplot program that draws the cells of `ranks` ranks into the SVG file `svg`. Back-to-back cells are left
/// out.
std::string plot_program(const Samples&, const std::vector<Line>&, int ranks, const std::string& svg);

}  // namespace collectives::compare
