// Which wire connects the hosts, and how it comes about. Every rank says by which it could be reached; all pick the
// same one, the best that everybody has; if it does not get through, the next is tried, unless one was asked for by
// name.
//
//   ucx   where it finds a network that is faster than TCP
//   mpi   where there is such a network, the ranks were started with MPI, and UCX does not serve it
//   tcp   everywhere else
//
// A wire that the bootstrap prefers to all of these comes first.
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
    std::string asked_for;  ///< a wire's name, or empty
    WireFactory factory;
    std::size_t context;  ///< of the factory's wires: not used by any member so far
    Deadline deadline;
  };
  /// Gives all ranks what each one's function yields; failures among them as objects with "error" and "code".
  using Exchange = std::function<std::vector<nlohmann::json>(const std::function<nlohmann::json()>& mine)>;

  Wires(Situation situation, Exchange exchange);

  /// Collective. Makes two exchanges when a wire was asked for. Throws Error on every rank, with the same words but for
  /// the rank.
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
