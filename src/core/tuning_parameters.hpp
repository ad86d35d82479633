// All numbers of a tuning: the eight numbers of the public class Tuning, and internal numbers.
//
// The numbers are costs, limits and sizes. A plan is the algorithm and the protocol of a call. The library chooses
// plans by TuningParameters, which hold all numbers. A program reads and passes a Tuning instead. The field `machine`
// of a Tuning points to the internal numbers, whose type programs do not see. Conversions between TuningParameters and
// Tuning keep all numbers.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "collectives/tuning.hpp"

namespace collectives {

/// Numbers that no program sets. They are built in, measured on a machine, or read from a tuning file. Sizes are bytes
/// of the whole vector unless a field says otherwise. Times are microseconds.
///
/// The ranks of a host perform an intra-host collective together through shared memory. The protocol is the way in
/// which these ranks exchange data. The protocol depends on the size of the vector. In a one-shot all-reduce, every
/// rank reads the whole vectors of all ranks. With zero copy, ranks map one another's buffers, and read and write them
/// directly. With single copy, the operating system copies between the buffers of ranks. In the staged protocol, ranks
/// copy their data to staging memory, from which peers read.
struct MachineParameters {
  std::size_t one_shot_bytes = 64 << 10;      ///< Longest one-shot all-reduce of two ranks.
  std::size_t one_shot_bytes_of_many = 8192;  ///< Longest one-shot all-reduce of p > 2 ranks: this number / (p - 1).
  /// Longest one-shot all-reduce of p > 3 oversubscribed ranks (more ranks than cores): this number / (p - 1).
  std::size_t one_shot_bytes_oversubscribed = 96 << 10;
  /// Shortest vector for zero copy, if the buffers of all ranks are mapped.
  std::size_t zero_copy_bytes = 2048;
  /// Shortest all-gather or broadcast of oversubscribed ranks for zero copy.
  std::size_t zero_copy_bytes_oversubscribed = 256 << 10;
  /// Shortest reduction by single copy, in the same unit as Tuning::single_copy_bytes.
  std::size_t single_copy_reduce_bytes = Tuning::kNever;
  /// Minimum total length of the inputs and outputs of a host's ranks for stores that bypass the caches.
  std::size_t streaming_bytes = 16 << 20;
  /// Shortest vector that ranks copy to staging memory by stores that bypass the caches. These stores save time only if
  /// the ranks share no cache.
  std::size_t streamed_staging_bytes = Tuning::kNever;
  std::size_t signal_bytes = 512;          ///< Bytes that a rank can copy while signalling one chunk.
  double host_latency_us = 0.2;            ///< Time of one synchronization of the ranks of a host.
  double host_us_per_byte = 1.0 / 10e3;    ///< Time of an intra-host collective per byte of the vector and rank.
  double domain_us = 0.3;                  ///< Additional time of a synchronization across sockets or caches.
  double domain_us_per_byte = 1.0 / 8e3;   ///< Additional time of each byte across sockets or caches.
  double message_us = 0.5;                 ///< Time of one message inside a host.
  double message_us_per_byte = 1.0 / 8e3;  ///< Time of each byte of a message inside a host.
  /// CPU time of a rank for each message that it sends to or receives from another host.
  double wire_message_us = 3.0;
  double wire_work_us_per_byte = 1.0 / 5e3;  ///< CPU time of a rank for each byte of such messages.
  /// Time of a byte while the links of all hosts are busy in both directions. 0: not measured, or not longer than on a
  /// link that is busy alone.
  double wire_together_us_per_byte = 0;
  double reduce_us_per_byte = 1.0 / 12e3;  ///< Time of arithmetic per byte of each source.
  double coding_us_per_byte = 1.0 / 12e3;  ///< Time of encoding or decoding per byte of the values.
  bool operator==(const MachineParameters&) const = default;
};

/// All numbers of a tuning. The class Tuning describes the fields that it also has.
struct TuningParameters : MachineParameters {
  TuningParameters() : TuningParameters(Tuning{}) {}
  /// Takes the numbers of a tuning. If the tuning has no handle of internal numbers, uses the built-in ones.
  explicit TuningParameters(const Tuning& tuning)
      : MachineParameters(tuning.machine != nullptr ? *tuning.machine : MachineParameters{}),
        inline_bytes(tuning.inline_bytes),
        single_copy_bytes(tuning.single_copy_bytes),
        chunk_bytes(tuning.chunk_bytes),
        frame_bytes(tuning.frame_bytes),
        wire_frame_bytes(tuning.wire_frame_bytes),
        wire_frames(tuning.wire_frames),
        wire_us(tuning.wire_us),
        wire_us_per_byte(tuning.wire_us_per_byte),
        source(tuning.source) {}
  /// Returns the tuning that a program sees. It holds a copy of the internal numbers.
  operator Tuning() const {  // NOLINT(google-explicit-constructor)
    return {.inline_bytes = inline_bytes,
            .single_copy_bytes = single_copy_bytes,
            .chunk_bytes = chunk_bytes,
            .frame_bytes = frame_bytes,
            .wire_frame_bytes = wire_frame_bytes,
            .wire_frames = wire_frames,
            .wire_us = wire_us,
            .wire_us_per_byte = wire_us_per_byte,
            .source = source,
            .machine = std::make_shared<const MachineParameters>(*this)};
  }

  std::size_t inline_bytes, single_copy_bytes, chunk_bytes, frame_bytes, wire_frame_bytes, wire_frames;
  double wire_us, wire_us_per_byte;
  std::string source;
  bool operator==(const TuningParameters&) const = default;
};

}  // namespace collectives
