// Wires: chooses the wire and connects it. A wire is the object by which a rank exchanges messages with the ranks of
// other hosts. There are three wires: "tcp", "ucx" and "mpi".
//
// Every rank publishes which wires it can use. All ranks then choose the same wire: the best one that every rank can
// use. If a rank cannot connect by that wire, all ranks try the next best one. If the user has named a wire, the ranks
// try only that one.
//
// The bootstrap is the means by which ranks exchange bytes before they are connected. A bootstrap may provide a wire of
// its own, such as "mpi". A fast device is a network device that may be faster than TCP, such as InfiniBand or
// Slingshot. The left column lists situations, and the right one the wires to try, the best first. The first situation
// that applies counts:
//
//   the user has named a wire                          that wire only
//   the bootstrap prefers its own wire                 that wire only
//   some rank has a fast device                        ucx, mpi, tcp
//   no rank has a fast device                          tcp, mpi
//
// If the user has not named ucx, a rank can use ucx only if UCX finds a fast device. A rank can use mpi if the
// bootstrap uses MPI.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/json_record.hpp"
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
    std::string asked_for;  ///< name of the wire to use; empty: the best one
    WireFactory factory;
    std::size_t context;  ///< number that tells the wires of one factory apart; no rank has used it yet
    Deadline deadline;
    std::function<void()> check_peers;  ///< throws if a rank is gone; may be empty
  };
  /// Collective: returns the objects of all ranks. `is_last`: whether an error of this rank ends the construction.
  using Exchange = std::function<std::vector<JsonRecord>(const nlohmann::json& mine, bool is_last)>;

  Wires(Situation situation, Exchange exchange);

  /// Chooses and connects the wire. Collective; makes one exchange, and one more per wire that it tries. Throws Error
  /// on every rank if no wire connects. The texts differ only in the rank that throws.
  std::unique_ptr<Wire> connect();

 private:
  nlohmann::json offers();
  std::vector<std::string> candidates(const std::vector<JsonRecord>& offers) const;
  std::unique_ptr<Wire> make(const std::string& name, const std::vector<JsonRecord>& offers);
  [[noreturn]] void refuse(const std::vector<JsonRecord>& offers) const;

  Situation with_;
  Exchange exchange_;
  int ranks_ = 0;
  std::vector<int> host_of_;
  std::vector<std::unique_ptr<Network>> networks_;
};

}  // namespace collectives
