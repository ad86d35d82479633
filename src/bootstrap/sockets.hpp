// TCP sockets for the rendezvous, in which all ranks connect to rank 0 (rendezvous.hpp). All sockets are in
// non-blocking mode. The function wait() blocks until one of several sockets has an event, or for a given time.
#pragma once

#include <netdb.h>
#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/descriptor.hpp"
#include "base/error_text.hpp"
#include "base/reported_wait.hpp"
#include "bootstrap/world.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

constexpr auto kRetry = std::chrono::milliseconds(20);  // Pause between attempts to connect or to listen.

using Socket = Descriptor;
using collectives::error_text;
/// Returns the address of rank 0 as text: "10.0.0.1:29500" or "[::1]:29500".
std::string place_of(const World& world);

void set_option(const Socket& socket, int level, int option, int value);

/// Blocks until one of `entries` has an event, but for at most `milliseconds`. After that, callers check their state
/// and call wait() again.
void wait(std::vector<pollfd>& entries, int milliseconds);
void pause(std::chrono::milliseconds time);

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;
/// Returns the addresses of rank 0. Returns null if its name does not resolve, and sets `answer` to the reason. A later
/// call may succeed, because name servers may learn of a new host late.
Addresses resolve(const World& world, std::string& answer);

/// Listens as rank 0. If the port is in use, waits for it for up to one second. Throws Error{bootstrap} naming the
/// port, or Error{system} if no descriptor is left.
Socket listen_at(const World& world, Deadline deadline);

/// Returns a duplicate of an inherited listening socket. The original stays open for the next rendezvous. Returns
/// nothing if `fd` does not listen at `port`. Throws Error{system} if no descriptor is left.
std::optional<Socket> adopt(int fd, int port);

/// Makes one attempt to connect. Returns 0 or an errno; EINPROGRESS means that the deadline passed without a result.
int try_connect(const addrinfo* address, ReportedWait& waiting, Socket& connection);

/// Returns whether an attempt to connect that failed with `error` would always fail: the system forbids it, has no such
/// protocol, has no descriptor left, or the loopback interface is down.
bool is_permanent(int error, const addrinfo* address);

}  // namespace collectives::tcp
