// Attacker: connects to the ports of a job's ranks, and sends bytes that no rank would send. It does not know the name
// of the job and its secret.
//
// Its bytes are mutations of greetings that the library itself sends in another job. The attacker closes connections by
// a reset, which leaves no port in use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace collectives::testing {

/// Ports at which processes listen for connections and receive datagrams.
struct OpenPorts {
  std::vector<int> connections, datagrams;
};
/// Returns the ports of the processes.
OpenPorts ports_of(const std::vector<pid_t>& processes);

/// Greetings that the library sends, as a base of mutations.
struct Greetings {
  std::string rendezvous, wire;
};
/// Lets child processes greet this process as ranks of another job, and returns their bytes. Throws if they send none.
Greetings record_greetings();

class Attacker {
 public:
  Attacker(std::uint64_t seed, Greetings greetings) : random_(seed), greetings_(std::move(greetings)) {}
  ~Attacker() { end(); }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  /// Sends one input to one of the ports. Returns false if no process listens there any more.
  bool attack(const OpenPorts& ports);
  /// Closes all connections.
  void end();
  /// Number of inputs by their kind.
  const std::map<std::string, std::uint64_t>& sent() const { return sent_; }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }
  std::string mutated(std::string bytes);
  std::string junk(std::size_t bytes);
  std::string forged_datagram();
  bool attack_connection(int port);
  bool attack_datagrams(int port);

  std::mt19937_64 random_;
  Greetings greetings_;
  std::deque<int> held_;  // open connections, oldest first
  std::map<std::string, std::uint64_t> sent_;
};

}  // namespace collectives::testing
