// Implementation of the records of the rendezvous over TCP. A record is a message between rank 0 and another rank, with
// a kind, a length and a payload. This file writes and reads payloads. A peer may send any bytes, so functions that
// read a payload return nothing if it is invalid.
#include "bootstrap/records.hpp"

#include <algorithm>
#include <cmath>

namespace collectives::tcp {
namespace {

constexpr std::size_t kMaxFailureText = 4096;
constexpr std::size_t kMaxListedRanks = 1024;
constexpr double kLongestWait = 1e9;  // Maximum of a time in a record, in seconds; a longer one is invalid.

/// First fields of a hello, the record with which a rank begins its connection. The text about the job follows them.
struct HelloFields {
  std::uint32_t version;
  std::int32_t rank;
  std::int32_t size;
  std::uint32_t user;
  std::uint64_t launch, scheduler;
  std::uint32_t named, reserved;
};

struct FailureFields {
  std::uint32_t code;
  std::int32_t culprit;
};

}  // namespace

std::shared_ptr<const std::string> make_record(Kind kind, std::string_view payload) {
  auto record = std::make_shared<std::string>(bytes_of(Header{kind, payload.size()}));
  record->append(payload);
  return record;
}

std::string hello_of(const World& world) {
  const HelloFields fields{.version = kVersion,
                           .rank = world.rank,
                           .size = world.size,
                           .user = world.job.user,
                           .launch = world.job.launch,
                           .scheduler = world.job.scheduler,
                           .named = world.job.named ? 1u : 0u,
                           .reserved = 0};
  return bytes_of(fields) + world.job.text.substr(0, kMaxJobText);
}

std::optional<Hello> read_hello(std::string_view payload) {
  std::uint32_t version = 0;
  if (!read_from(payload, version)) return std::nullopt;
  if (version != kVersion) return Hello{.version = version};
  HelloFields fields{};
  if (!read_from(payload, fields)) return std::nullopt;
  return Hello{.version = version,
               .rank = fields.rank,
               .size = fields.size,
               .job = {.launch = fields.launch,
                       .scheduler = fields.scheduler,
                       .user = fields.user,
                       .named = fields.named != 0,
                       .text = escaped_text(payload.substr(sizeof fields), kMaxJobText)}};
}

std::string failure_bytes(const Failure& failure) {
  return bytes_of(FailureFields{static_cast<std::uint32_t>(failure.code), failure.culprit}) +
         failure.text.substr(0, kMaxFailureText);
}

std::optional<Failure> read_failure(std::string_view payload) {
  FailureFields fields{};
  if (!read_from(payload, fields)) return std::nullopt;
  const bool known = fields.code >= static_cast<std::uint32_t>(Errc::invalid_argument) &&
                     fields.code <= static_cast<std::uint32_t>(Errc::system);
  return Failure{known ? static_cast<Errc>(fields.code) : Errc::bootstrap, std::max(fields.culprit, kNoRank),
                 std::string(payload.substr(sizeof fields, kMaxFailureText))};
}

std::string contributions_of(const std::vector<std::string>& gathered) {
  std::string contributions;
  for (const std::string& each : gathered) contributions += bytes_of(std::uint64_t{each.size()}) + each;
  return contributions;
}

std::optional<std::vector<std::string>> read_contributions(std::string_view payload, std::size_t ranks) {
  std::vector<std::string> gathered;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::uint64_t bytes = 0;
    if (!read_from(payload, bytes) || bytes > payload.size() - sizeof bytes) return std::nullopt;
    gathered.emplace_back(payload.substr(sizeof bytes, bytes));
    payload.remove_prefix(sizeof bytes + bytes);
  }
  if (!payload.empty()) return std::nullopt;
  return gathered;
}

std::optional<double> read_seconds(std::string_view payload) {
  double seconds = 0;
  if (payload.size() != sizeof seconds || !read_from(payload, seconds)) return std::nullopt;
  if (!std::isfinite(seconds) || seconds < 0 || seconds > kLongestWait) return std::nullopt;
  return seconds;
}

std::string ranks_bytes(const std::vector<Rank>& ranks) {
  std::string bytes;
  for (std::size_t i = 0; i < std::min(ranks.size(), kMaxListedRanks); ++i)
    bytes += bytes_of(static_cast<std::int32_t>(ranks[i]));
  return bytes;
}

std::optional<std::vector<Rank>> read_ranks(std::string_view payload, int size) {
  if (payload.size() % sizeof(std::int32_t) != 0 || payload.size() / sizeof(std::int32_t) > kMaxListedRanks)
    return std::nullopt;
  std::vector<Rank> ranks;
  for (std::int32_t rank = 0; read_from(payload, rank); payload.remove_prefix(sizeof rank)) {
    if (rank < 0 || rank >= size || (!ranks.empty() && rank <= ranks.back())) return std::nullopt;
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace collectives::tcp
