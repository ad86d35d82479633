// Injection: causes the faults (failures for tests) that the program has requested (faults.hpp). An Injection belongs
// to one rank of one communicator. It works with all backends and wires.
//
// OperationQueue reports each phase of a call by enter(). If a fault names that call and phase, Injection causes it
// once. The rank itself delays, stops or kills its process. Its wire, the transport between hosts, cuts connections and
// loses datagrams (Wire::cut, Wire::lose). Each fault is logged as a warning before it happens: "injected: kill rank=2
// call=17 phase=begin".
//
// If no fault is requested for its rank, a communicator has no Injection. Price: each attempt to progress a call then
// tests one null pointer.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/transport.hpp"
#include "injection/faults.hpp"

namespace collectives {

class Injection {
 public:
  /// Returns an object with the faults that rank `self` causes. Returns null if there are none. `threads`: whether the
  /// ranks of this host are threads of one process. If so, faults cannot stop or kill a rank.
  static std::unique_ptr<Injection> of_rank(const std::vector<Fault>& faults, Rank self, bool threads);

  /// Sets the wire, the transport to the ranks `remote` of other hosts; null: there is one host. Throws
  /// Error{invalid_argument} that names the first fault without a meaning, and the reason.
  void connect(Wire* wire, std::vector<Rank> remote);
  /// Causes the faults of this phase of a call. Does nothing if there are none. Blocks for the time of a delay.
  void enter(std::uint64_t call, Fault::Phase phase);
  /// Logs a warning for each fault that has not happened. `calls`: number of the last call of the communicator.
  void report_missed(std::uint64_t calls) const;

 private:
  struct Planned {
    Fault fault;
    bool happened = false;
  };
  Injection(std::vector<Planned> faults, Rank self, bool threads)
      : faults_(std::move(faults)), self_(self), threads_(threads) {}

  std::string why_not(const Fault& fault) const;
  void cause(const Fault& fault);

  std::vector<Planned> faults_;
  const Rank self_;
  const bool threads_;
  Wire* wire_ = nullptr;
  std::vector<Rank> remote_;
};

}  // namespace collectives
