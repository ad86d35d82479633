// The report as a picture: a column for each collective, above the times of all contenders, below the ratios with their
// intervals.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

/// A gnuplot program that draws the cells of `ranks` ranks into the SVG file `svg`; back to back is left to the tables.
std::string plot_program(const Samples&, const std::vector<Line>&, int ranks, const std::string& svg);

}  // namespace collectives::compare
