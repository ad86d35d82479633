// Tuning: the numbers with which plans are chosen.
//
// A program may set eight of them. The other numbers are prices and limits that are measured on a machine, or that a
// tuning file sets (COLLECTIVES_TUNING). docs/tuning.md explains all numbers.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "collectives/export.hpp"

namespace collectives {

struct MachineParameters;  // internal numbers, in src/core/tuning_parameters.hpp

/// Numbers of a communicator: eight that a program may set, and a handle to the internal ones.
///
/// Rank 0 sends its numbers to all ranks, so that all ranks agree. If neither the program nor COLLECTIVES_TUNING gives
/// numbers, some are measured at the first use on a machine and kept in a file.
///
/// To change a number and keep the measured ones, copy Communicator::tuning(), set the number, and pass the copy as
/// CommunicatorOptions::tuning. The copy holds the internal numbers by its handle `machine`. A Tuning that a program
/// makes has no handle. Its internal numbers are then those of the file that COLLECTIVES_TUNING names, otherwise the
/// built-in ones. Nothing is measured in both cases.
struct Tuning {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  /// Largest vector inside the polled cache lines, in bytes that one rank shows to all other ranks together. Half of it
  /// if every rank shows its data to all.
  std::size_t inline_bytes = 1024;
  /// Smallest gather or broadcast that the kernel copies, in bytes of the vector of two ranks. More ranks need a vector
  /// whose parts are as long.
  std::size_t single_copy_bytes = kNever;
  std::size_t chunk_bytes = 64 << 10;        ///< Staging memory per rank and chunk of an intra-host collective.
  std::size_t frame_bytes = 64 << 10;        ///< Largest message in bytes, except as wire_frame_bytes says.
  std::size_t wire_frame_bytes = 512 << 10;  ///< Largest message in bytes if all messages of a plan go to other hosts.
  /// Maximum number of messages in flight between two ranks of different hosts. A transport may allow fewer.
  std::size_t wire_frames = 8;
  double wire_us = 15.0;                  ///< Latency of a short message between hosts.
  double wire_us_per_byte = 1.0 / 1.1e3;  ///< Time of a byte on the link of a host, which its ranks share.

  std::string source = "built-in";  ///< Origin of the numbers, in words.
  /// Internal numbers of the communicator that returned this tuning. They are never changed. Null: see above.
  std::shared_ptr<const MachineParameters> machine = {};

  /// Compares all numbers, also the internal ones, and the origin.
  COLLECTIVES_EXPORT bool operator==(const Tuning&) const;
};

}  // namespace collectives
