// Connect phase of the TCP network: makes the connections of one rank to all ranks of other hosts.
//
// Each pair of ranks on different hosts has two connections, called channels. Channel 0 carries data. Channel 1 carries
// control messages (short texts). The rank with the higher number connects. The first bytes on a connection prove that
// both ends belong to the job (tcp_greeting.hpp).
#pragma once

#include <vector>

#include "bootstrap/sockets.hpp"
#include "transport/network.hpp"
#include "transport/tcp.hpp"
#include "transport/tcp_network.hpp"
#include "transport/wire_secret.hpp"

namespace collectives {

/// Returns the connections to all ranks of other hosts, as a list with one entry per rank. `listener` is the socket
/// that listens at the address that this rank has published. Throws Error{timeout} at the deadline, Error{peer_lost} if
/// a rank has ended (tcp_peer_watch.hpp), Error{bootstrap} for a malformed address, and Error{system} if no file
/// descriptor is left. Also throws the errors of PeerAddresses::turn.
std::vector<TcpLink> make_tcp_links(const tcp::Socket& listener, const TcpSettings&, const PeerAddresses&,
                                    const WireSecret&);

}  // namespace collectives
