// Conversion of tunings to JSON and back. A tuning is a table of the numbers by which the library chooses the algorithm
// of each call: costs, limits and sizes. Rank 0 sends the tuning as JSON to all ranks. A tuning file contains JSON of
// the same form.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "collectives/plan.hpp"
#include "core/tuning_parameters.hpp"

namespace collectives {

/// Returns all numbers of the tuning by name. The result does not contain `source`, which says where they come from.
nlohmann::json to_json(const TuningParameters&);
/// Overwrites fields of `tuning` with the fields of a JSON object. The value "never" means Tuning::kNever. Throws
/// Error{invalid_argument} for an invalid number and for an unknown field. The error for an unknown field lists the
/// known fields. `where` names the source of the text, for errors. A field may have the name of an earlier version. The
/// first use of an old name logs a warning.
void read_json(const nlohmann::json&, TuningParameters& tuning, std::string_view where);

/// Returns the time in microseconds that a core spends at each end of a message between two hosts of one machine. No
/// network adapter takes part in this message, so the cores themselves spend the time of the wire's latency, each core
/// one half. Each core also spends its usual time for a message.
inline double message_inside_machine_us(const TuningParameters& tuning) {
  return tuning.wire_us / 2 + tuning.wire_message_us;
}

/// Returns the built-in numbers. Only streaming_bytes depends on this machine. It is the size of the last-level cache,
/// if known, and at most 128 MiB. The call takes almost no time.
TuningParameters built_in_tuning();

/// Returns the built-in numbers of this machine, overwritten with the fields of a JSON file. The file may have
/// comments. Throws Error{invalid_argument} that names the file and the mistake.
TuningParameters tuning_of_file(const std::string& path);

}  // namespace collectives
