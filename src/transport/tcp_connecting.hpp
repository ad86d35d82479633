// Connect phase of the TCP network: makes all connections of one rank.
//
// Each pair of ranks on different hosts has two connections, called channels: 0 for data, and 1 for control messages
// (short texts). The rank with the higher number connects. tcp_greeting.hpp describes the first bytes on a connection.
#pragma once

#include <vector>

#include "bootstrap/sockets.hpp"
#include "transport/network.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_network.hpp"
#include "transport/wire_secret.hpp"

namespace collectives {

/// Returns the connections to all ranks of other hosts, by rank. `listener` listens at the published address of this
/// rank. Throws Error{timeout} at the deadline, Error{peer_lost} if a rank has ended (tcp_peer_watch.hpp),
/// Error{bootstrap} for a malformed address, and Error{system} if no file descriptor is left. Throws the errors of
/// PeerAddresses::turn.
std::vector<TcpLink> make_tcp_links(const tcp::Socket& listener, const TcpSettings&, const PeerAddresses&,
                                    const WireSecret&);

}  // namespace collectives
