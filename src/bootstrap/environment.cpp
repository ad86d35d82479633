// bootstrap_from_environment(): makes a bootstrap from environment variables. A bootstrap lets ranks exchange bytes
// before they have a transport. The function finds rank and size of this process (world.hpp), and connects the ranks
// over TCP (rendezvous.hpp).
#include "base/environment.hpp"

#include <unistd.h>

#include <memory>
#include <string_view>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"

namespace collectives {

std::unique_ptr<Bootstrap> bootstrap_from_environment(std::chrono::nanoseconds timeout) {
  Variables variables;
  for (const char* const* entry = ::environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    if (const auto equals = text.find('='); equals != text.npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  Environment ours;
  try {
    ours = rendezvous_environment();
  } catch (const Error& error) {  // No rank can tell its peers yet, so the error names the rank that failed.
    constexpr int kAnyPort = 1;
    throw Error(error.code(), error.what(), world_of(variables, kAnyPort, ::getppid()).rank);
  }
  World world = world_of(variables, ours.port, ::getppid());
  world.job.user = ::getuid();
  return rendezvous(world, ours.listen_fd, timeout);
}

}  // namespace collectives
