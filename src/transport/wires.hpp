// Choice of the wire between hosts.
//
// Every rank publishes the wires that it has. All ranks then choose the same wire: the best one that every rank has. If
// it cannot connect on some rank, all ranks try the next one. A wire that was asked for by name has no alternative.
//
// Candidates, best first. A wire that some rank lacks is skipped.
//
//   asked for by name                                  that wire only
//   the bootstrap prefers its own wire                 that wire only
//   some rank has a device beside TCP                 ucx, mpi, tcp
//   no rank has such a device                          tcp, mpi
//
// The third line means a device that may be faster than TCP (InfiniBand, Slingshot). A rank has ucx if UCX finds such a
// device there. It has mpi if the ranks were started with MPI.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/transport.hpp"
#include "transport/network.hpp"

namespace collectives {

class Wires {
 public:
  struct Situation {
    Rank rank;
    std::vector<std::vector<Rank>> hosts;
    std::string token;
    std::size_t frame_bytes;
    std::string asked_for;  ///< Name of the wire to use; empty for the best one.
    WireFactory factory;
    std::size_t context;  ///< Context number for a wire of the factory; no member has used it yet.
    Deadline deadline;
  };
  /// Collective: calls the function on each rank and returns the results of all ranks. An Error of a rank becomes an
  /// object with "error" and "code".
  using Exchange = std::function<std::vector<nlohmann::json>(const std::function<nlohmann::json()>& mine)>;

  Wires(Situation situation, Exchange exchange);

  /// Connects the wire. Collective; makes one exchange, and one more per wire that it tries. Throws Error on every
  /// rank, with the same text except for the rank.
  std::unique_ptr<Wire> connect();

 private:
  nlohmann::json offers();
  std::vector<std::string> candidates(const std::vector<nlohmann::json>& offers) const;
  std::unique_ptr<Wire> make(const std::string& name, const std::vector<nlohmann::json>& offers);
  [[noreturn]] void refuse(const std::vector<nlohmann::json>& offers) const;

  Situation with_;
  Exchange exchange_;
  int ranks_ = 0;
  std::vector<int> host_of_;
  std::vector<std::unique_ptr<Network>> networks_;
};

}  // namespace collectives
