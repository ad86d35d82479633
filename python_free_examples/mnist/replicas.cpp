// Implementation of the actions that all ranks perform together, such as comparing their copies of the model
// (replicas). They use short collectives with one word per rank.
#include "replicas.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>

namespace mnist {

std::uint64_t hash_of(std::span<const float> values) {
  // FNV-1a over 32-bit words; the upper half is also combined into the lower one
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::string disagreement(std::string_view what, std::span<const std::string> value_of_rank) {
  const auto votes = [&](const std::string& value) { return std::ranges::count(value_of_rank, value); };
  const std::string& usual = *std::ranges::max_element(value_of_rank, {}, votes);
  std::vector<std::string> odd;
  for (std::size_t rank = 0; rank < value_of_rank.size(); ++rank)
    if (value_of_rank[rank] != usual) odd.push_back(fmt::format("rank {} has {}", rank, value_of_rank[rank]));
  if (odd.empty()) return {};
  return fmt::format("{} differ between ranks: {}, the others {}", what, fmt::join(odd, ", "), usual);
}

void require_equal(collectives::Communicator& comm, std::string_view what, std::uint64_t hash) {
  std::vector<std::uint64_t> hash_of_rank(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span(&hash, 1), hash_of_rank);
  std::vector<std::string> texts;
  for (const std::uint64_t each : hash_of_rank) texts.push_back(fmt::format("{:016x}", each));
  if (const std::string found = disagreement(what, texts); !found.empty()) throw ReplicaError(found);
}

void together(collectives::Communicator& comm, const std::function<void()>& action) {
  std::exception_ptr failure;
  try {
    action();
  } catch (...) {
    failure = std::current_exception();
  }
  const std::uint8_t failed = failure != nullptr;
  std::vector<std::uint8_t> failed_on(static_cast<std::size_t>(comm.size()));
  comm.all_gather(std::span(&failed, 1), failed_on);
  const auto first = std::ranges::find(failed_on, 1) - failed_on.begin();
  if (first == comm.rank()) std::rethrow_exception(failure);
  if (first < comm.size()) throw FailedElsewhere();
}

std::string from_rank_0(collectives::Communicator& comm, std::string bytes) {
  std::uint64_t length = bytes.size();
  comm.broadcast(std::span(&length, 1), 0);
  bytes.resize(length);
  comm.broadcast({bytes.data(), bytes.size(), collectives::DataType::u8}, 0);
  return bytes;
}

}  // namespace mnist
