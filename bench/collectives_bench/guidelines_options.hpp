// Command line of the sub-command `guidelines` of collectives_bench.
#pragma once

#include <string_view>

#include "collectives_bench/options.hpp"

namespace collectives::bench {

inline constexpr std::string_view kGuidelinesCommand = "guidelines";

/// Parses the command line of the sub-command, whose first word is its name. Throws BadArguments or HelpWanted.
Settings parse_guideline_settings(int argc, const char* const* argv);

}  // namespace collectives::bench
