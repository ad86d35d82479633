// The tuning table as text: what rank 0 tells the others, and what is kept in a file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "collectives/plan.hpp"

namespace collectives {

/// All numbers by name; not their source.
nlohmann::json to_json(const Tuning&);
/// Reads the fields that are there over `tuning`; "never" stands for Tuning::kNever. Throws Error{invalid_argument}
/// naming a field that is unknown (with the known ones) or no fitting number; `where` says whose text it is. Reads a
/// field by its old name, too, and warns once.
void read_json(const nlohmann::json&, Tuning& tuning, std::string_view where);

/// A message between two hosts of one machine is all work of its cores, the system's part of it too: us at each end.
inline double message_inside_machine_us(const Tuning& tuning) { return tuning.wire_us / 2 + tuning.wire_message_us; }

/// The built-in numbers for this machine: what leaves its last-level cache goes past it. Costs next to nothing.
Tuning built_in_tuning();

/// The fields of a JSON file, comments allowed, over the built-in numbers of this machine. Throws
/// Error{invalid_argument} naming the file and what is wrong with it.
Tuning tuning_of_file(const std::string& path);

}  // namespace collectives
