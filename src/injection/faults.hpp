// Faults: failures that the library causes on request, so that a program can test how it handles failures. The text of
// COLLECTIVES_INJECT or CommunicatorOptions::inject lists the faults:
//
//   kill rank=2 call=17 phase=sent; delay rank=1 call=5 ms=300; drop from=0 to=1 call=3
//
// Each fault begins with a word for its kind. Settings of the form key=value follow. Semicolons separate faults. The
// word "none" means no fault. docs/fault_injection.md describes each kind of fault. The class Injection (injection.hpp)
// causes the faults.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/types.hpp"

namespace collectives {

struct Fault {
  enum class Kind : std::uint8_t {
    delay,       ///< the rank sleeps
    stop,        ///< the rank's process stops by SIGSTOP
    kill,        ///< the rank's process ends by SIGKILL
    disconnect,  ///< the rank cuts its connections to all other hosts
    drop,        ///< datagrams from the rank to another one are lost
    cut          ///< the rank cuts its connections to another one
  };
  /// Point of a call at which the fault happens.
  enum class Phase : std::uint8_t {
    begin,  ///< before the rank enters the call
    sent,   ///< after the rank has sent its first data and published that it has entered the call
    wait,   ///< when the rank has waited for about a millisecond
    end     ///< when the result is complete, before the rank reports that to its peers and to the program
  };

  Kind kind = Kind::delay;
  Phase phase = Phase::begin;
  Rank rank = -1;  ///< rank that causes the fault
  Rank to = -1;    ///< rank at the other end; only for drop and cut
  /// Number of the call, as error texts show it. 0: the construction of the communicator.
  std::uint64_t call = 0;
  std::chrono::milliseconds delay{0};
  unsigned datagrams = 1;  ///< number of datagrams that a fault of kind drop loses

  /// Returns the fault in the notation of the text.
  std::string text() const;
};

/// Returns the faults of a text. If the text is invalid, throws Error{invalid_argument}, which names the position of
/// the mistake (counted from 1) and the valid words. `source`: variable or option that holds the text, for the error.
std::vector<Fault> parse_faults(std::string_view text, std::string_view source);

/// Throws Error{invalid_argument} if a fault names a rank that a communicator of `ranks` ranks does not have.
void check_ranks(const std::vector<Fault>& faults, int ranks, Rank self);

}  // namespace collectives
