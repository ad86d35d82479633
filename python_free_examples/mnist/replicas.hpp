// Every rank holds a replica of the model and must hold the same bits: what ranks do together, and whether they agree.
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

/// 64 bits of the bits of `values`.
std::uint64_t hash_of(std::span<const float> values);

/// Empty when all are equal; otherwise one line that names the ranks whose value is not the most frequent one (of
/// equally frequent ones, the lowest rank's).
std::string disagreement(std::string_view what, std::span<const std::string> value_of_rank);

/// Ranks hold different values of what must be equal.
class ReplicaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Compares `hash` over all ranks. Throws ReplicaError, on every rank, when they differ.
void require_equal(collectives::Communicator& comm, std::string_view what, std::uint64_t hash);

/// Another rank failed and says why; this one only ends.
struct FailedElsewhere : std::exception {};

/// Runs `action` on every rank. When it throws anywhere, every rank throws: the lowest of those where it did, what it
/// threw; all others, FailedElsewhere.
void together(collectives::Communicator& comm, const std::function<void()>& action);

/// The bytes of rank 0, on every rank.
std::string from_rank_0(collectives::Communicator& comm, std::string bytes);

}  // namespace mnist
