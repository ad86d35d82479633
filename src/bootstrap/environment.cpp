// Implementation of bootstrap_from_environment(), which makes a bootstrap from environment variables. A bootstrap
// exchanges bytes before ranks have a transport. The function first finds the rank of this process and the number of
// ranks (world.hpp). After that, it connects all ranks over TCP (rendezvous.hpp).
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
    // The ranks are not connected, so only this rank knows the error. Its text must therefore name this rank.
  } catch (const Error& error) {
    constexpr int kAnyPort = 1;
    throw Error(error.code(), error.what(), world_of(variables, kAnyPort, ::getppid()).rank);
  }
  World world = world_of(variables, ours.port, ::getppid());
  world.job.user = ::getuid();
  return rendezvous(world, ours.listen_fd, timeout);
}

}  // namespace collectives
