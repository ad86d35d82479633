// Plot of the comparison with other libraries, the peers. Each collective has a column with two diagrams. The upper
// diagram shows the times of all libraries. The lower diagram shows the time of the best peer divided by ours, with
// confidence intervals.
#pragma once

#include <string>
#include <vector>

#include "analysis.hpp"

namespace collectives::compare {

/// Returns a gnuplot program that draws the results of `ranks` ranks into the SVG file `svg`. Leaves out calls that
/// were timed back to back.
std::string plot_program(const Samples&, const std::vector<Line>&, int ranks, const std::string& svg);

}  // namespace collectives::compare
