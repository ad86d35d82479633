// Actions that all ranks perform together, and checks that ranks agree. Every rank holds a replica of the model. All
// replicas must have the same bits.
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

/// Returns an empty text if all values are equal. Otherwise returns one line with the ranks whose value is not the most
/// frequent one. If several values are equally frequent, that of the lowest rank counts.
std::string disagreement(std::string_view what, std::span<const std::string> value_of_rank);

/// Exception: values that must be equal differ between ranks.
class ReplicaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Compares `hash` over all ranks. Throws ReplicaError on every rank if they differ.
void require_equal(collectives::Communicator& comm, std::string_view what, std::uint64_t hash);

/// Exception: another rank has failed. That rank reports the reason, and this rank ends without a message.
struct FailedElsewhere : std::exception {};

/// Runs `action` on every rank. If it throws on any rank, every rank throws. The lowest such rank throws its own
/// exception. The other ranks throw FailedElsewhere.
void together(collectives::Communicator& comm, const std::function<void()>& action);

/// Returns the bytes of rank 0 on every rank.
std::string from_rank_0(collectives::Communicator& comm, std::string bytes);

}  // namespace mnist
