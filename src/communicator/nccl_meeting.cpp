#include "communicator/nccl_meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/wait.hpp"
#include "bootstrap/exchange.hpp"

namespace collectives {
namespace {

using nlohmann::json;

/// Makes known what `work` fails with; throws the failure that was first.
template <class Work>
void for_all(std::string_view operation, const Meeting& meeting, Watch& watch, Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    watch.raise(error.code(), meeting.rank, operation,
                fmt::format("{}: rank {}: {}", operation, meeting.rank, error.what()));
    watch.throw_failure();
  }
}

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}
std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Waits until `clique` is settled, or someone has failed or is gone, who has completed fewer than `sequence` calls:
/// what fails here is made known to all. Throws Error.
void settle(Clique& clique, std::string_view operation, std::uint64_t sequence, const Meeting& meeting, Watch& watch,
            Deadline deadline) {
  for_all(operation, meeting, watch, [&] {
    Waiter waiter(meeting.crowded);
    while (!clique.settled()) {
      if (!waiter.pause()) continue;
      watch.listen();
      watch.look_for_lost({.sequence = sequence, .signature = {}, .operation = operation});
      if (deadline.passed()) throw Error(Errc::timeout, "NCCL has not connected all ranks in time");
    }
  });
}

}  // namespace

std::unique_ptr<Clique> meet_by_nccl(Bootstrap& bootstrap, const Meeting& meeting, std::span<const Rank> members,
                                     Watch& watch, std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  const Rank first = members.front();
  const auto self = static_cast<Rank>(std::ranges::find(members, meeting.rank) - members.begin());
  const json told = exchange(bootstrap, attempt([&] {
                               json card = json::object();
                               if (meeting.rank == first) card["id"] = to_hex(meeting.nccl->new_id());
                               return card;
                             }),
                             deadline)[static_cast<std::size_t>(first)];
  std::unique_ptr<Clique> clique;
  const json mine = attempt([&] {
    for_all("construction", meeting, watch, [&] {
      meeting.device->while_current([&] {
        clique = meeting.nccl->join(static_cast<int>(members.size()), from_hex(told.at("id").get<std::string>()), self);
      });
    });
    settle(*clique, "construction", 1, meeting, watch, deadline);
    return json::object();
  });
  // Who is gone exchanges nothing.
  if (mine.contains("error") && mine.at("code").get<int>() == static_cast<int>(Errc::peer_lost)) watch.throw_failure();
  // After this everyone knows that everyone is in.
  const std::vector<json> all = exchange(bootstrap, mine, Deadline::in(timeout), Failures::told);
  const auto failed = std::ranges::find_if(all, [](const json& one) { return one.contains("error"); });
  if (failed == all.end()) return clique;
  throw Error(static_cast<Errc>(failed->at("code").get<int>()), failed->at("error").get<std::string>(), meeting.rank,
              static_cast<Rank>(failed - all.begin()), "construction");
}

std::unique_ptr<Clique> split_by_nccl(Clique& clique, int color, int key, std::uint64_t sequence,
                                      const Meeting& meeting, Watch& watch, Deadline deadline) {
  std::unique_ptr<Clique> part;
  for_all("split", meeting, watch, [&] { part = clique.split(color, key); });
  settle(*part, "split", sequence, meeting, watch, deadline);
  return part;
}

}  // namespace collectives
