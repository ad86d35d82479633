// Plot of the comparison with other libraries, our peers. Each collective has a column of two diagrams. The upper one
// shows the times of all libraries. The lower one shows the ratios of the best peer's time to ours, with confidence
// intervals.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

/// Returns a gnuplot program that draws the cells of `ranks` ranks into the SVG file `svg`. Back-to-back cells are left
/// out.
std::string plot_program(const Samples&, const std::vector<Line>&, int ranks, const std::string& svg);

}  // namespace collectives::compare
