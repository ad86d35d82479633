// First failure: the first reported failure of a communicator. It is stored in shared memory, so that all ranks of a
// host throw the same error.
//
// The arena is the shared memory of the host. One part, the abort block, holds the first failure. Later failures are
// dropped. The block has three states: empty, being written, and complete. If a rank ends while it writes, the block
// never becomes complete.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/error.hpp"
#include "shared_memory/arena.hpp"

namespace collectives {

/// Failure of an operation: the fields of the Error that ranks throw.
struct Failure {
  Errc code = Errc::system;
  Rank peer = kNoRank;  ///< Rank that has caused the failure; kNoRank if no rank did.
  std::string operation;
  std::string text;
};

class FirstFailure {
 public:
  /// Maximum time for which a reader waits while another rank writes a failure. Writing takes microseconds, unless the
  /// writer loses its core.
  static constexpr std::chrono::milliseconds kLongestWrite{100};

  explicit FirstFailure(AbortBlock& block) noexcept : block_(block) {}

  /// Returns true if a failure is complete or being written. Costs one load.
  bool exists() const noexcept { return block_.state.load(std::memory_order_acquire) != kEmpty; }
  /// Stores a failure, unless there is one. Cuts `operation` to 95 bytes and `text` to 1023, the sizes of the block.
  /// Replaces control characters by spaces, so that each text stays on one line.
  void store(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept;
  /// Returns the failure if it is complete.
  std::optional<Failure> read() const;
  /// Blocks while another rank writes the failure, for at most `patience`. Returns the failure, or none if it is still
  /// not complete.
  std::optional<Failure> wait(std::chrono::nanoseconds patience = kLongestWrite) const;

 private:
  enum State : std::uint32_t { kEmpty, kBeingWritten, kComplete };
  AbortBlock& block_;
};

}  // namespace collectives
