// Tuning: the numbers by which the library chooses how to perform a call.
//
// A program may set eight numbers. The other numbers are internal: times and limits. They are built in, measured on a
// machine, or read from a file (COLLECTIVES_TUNING). docs/tuning.md explains all numbers.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>

#include "collectives/export.hpp"

namespace collectives {

struct MachineParameters;  // internal numbers, in src/core/tuning_parameters.hpp

/// Tuning numbers of a communicator: eight that a program may set, and a handle of the internal ones.
///
/// Rank 0 sends its numbers to all ranks, so that all ranks have equal numbers. If neither the program nor
/// COLLECTIVES_TUNING gives numbers, some numbers are measured at the first use on a machine and kept in a file.
///
/// To change a number and keep the measured ones, copy Communicator::tuning(), set the number, and pass the copy as
/// CommunicatorOptions::tuning. The copy has the handle `machine` of the internal numbers. A Tuning that a program
/// makes itself has no handle. Its internal numbers are those of the file that COLLECTIVES_TUNING names. If there is no
/// such file, they are the built-in numbers. If a program passes a Tuning, nothing is measured.
struct Tuning {
  static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

  /// Maximum number of bytes that one rank sends to all other ranks of its host together inside the cache lines that
  /// they poll. The limit is half of this number if every rank sends to all others.
  std::size_t inline_bytes = 1024;
  /// Minimum length in bytes of an all-gather or broadcast in which the operating system copies between processes. The
  /// number is for two ranks, each with half of the vector. With more ranks, each part must be as long as with two.
  std::size_t single_copy_bytes = kNever;
  /// Usual number of bytes that each rank writes to shared memory for one chunk. The ranks of a host pass long vectors
  /// through shared memory in chunks. A chunk may be longer or shorter.
  std::size_t chunk_bytes = 64 << 10;
  /// Maximum bytes of a message, except in the calls that `wire_frame_bytes` limits.
  std::size_t frame_bytes = 64 << 10;
  /// Maximum bytes of a message if each host has one rank, or if a hierarchical all-reduce first adds inside each host.
  std::size_t wire_frame_bytes = 512 << 10;
  /// Maximum number of messages in flight between two ranks of different hosts. A transport may allow fewer.
  std::size_t wire_frames = 8;
  double wire_us = 15.0;                  ///< Latency of a short message between hosts, in microseconds.
  double wire_us_per_byte = 1.0 / 1.1e3;  ///< Time of a byte on a host's link, in microseconds.

  std::string source = "built-in";  ///< Origin of the numbers, in words.
  /// Internal numbers of the communicator that returned this tuning. They are never changed. Null: see above.
  std::shared_ptr<const MachineParameters> machine = {};

  /// Compares all numbers, also the internal ones, and the origin.
  COLLECTIVES_EXPORT bool operator==(const Tuning&) const;
};

}  // namespace collectives
