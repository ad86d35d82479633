// Implementation of rendezvous(), which connects all ranks over TCP, so that they can exchange bytes. Rank 0 is the hub
// (hub.hpp). Every other rank is a spoke, with one connection to the hub (spoke.hpp). A job with a single rank needs no
// connection.
#include "bootstrap/rendezvous.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/hub.hpp"
#include "bootstrap/member.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/spoke.hpp"

namespace collectives {
namespace {

/// Bootstrap of a job with a single rank, which exchanges bytes only with itself.
class Alone final : public tcp::Member {
 public:
  using Member::Member;

 private:
  std::vector<std::string> exchange(std::string_view mine, Deadline) override { return {std::string(mine)}; }
};

}  // namespace

std::unique_ptr<Bootstrap> rendezvous(const World& world, std::optional<int> listening,
                                      std::chrono::nanoseconds timeout) {
  const Deadline deadline = Deadline::in(timeout);
  if (world.size == 1) return std::make_unique<Alone>(world);
  if (world.rank != 0) return tcp::make_spoke(world, deadline);
  std::optional<tcp::Socket> listener;
  if (listening) listener = tcp::adopt(*listening, world.port);
  if (!listener) listener = tcp::listen_at(world, deadline);
  return tcp::make_hub(world, std::move(*listener), deadline);
}

}  // namespace collectives
