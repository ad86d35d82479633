// Actions that all ranks perform together, and checks that their values are equal. Every rank has a copy of the model,
// a replica. All replicas must have the same bits.
#pragma once

#include <collectives/communicator.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mnist {

/// Returns a 64-bit hash of the bits of `values`.
std::uint64_t hash_of(std::span<const float> values);

/// Returns an empty text if all values are equal. Otherwise returns a line that lists the ranks whose value differs
/// from the most frequent one. If two values are equally frequent, the value of the lowest rank counts as the most
/// frequent one.
std::string disagreement(std::string_view what, std::span<const std::string> value_of_rank);

/// Exception for values that must be equal on all ranks and are not.
class ReplicaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Compares `hash` with that of all other ranks. If the hashes differ, throws ReplicaError on every rank.
void require_equal(collectives::Communicator& comm, std::string_view what, std::uint64_t hash);

/// Exception for a failure of another rank. That rank reports the reason, so this one does not.
struct FailedElsewhere : std::exception {};

/// Runs `action` on every rank. If it throws on some ranks, the lowest of them throws its own exception, and all other
/// ranks throw FailedElsewhere.
void together(collectives::Communicator& comm, const std::function<void()>& action);

/// Returns the bytes of rank 0 on every rank.
std::string from_rank_0(collectives::Communicator& comm, std::string bytes);

}  // namespace mnist
