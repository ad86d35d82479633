// Greetings: the handshakes by which connections to rank 0 prove that they belong to ranks of the job. In a rendezvous,
// all ranks connect to rank 0 (rendezvous.hpp).
//
// Any process may connect to the port of rank 0 and send any bytes. A connection that has proven that it belongs to a
// rank is called a member. A connection becomes a member in three steps:
//
//   hello   the process sends version, rank, size and job
//   seen    rank 0 answers with a random number
//   proof   the process sends the number back
//
// A connection without a proof does not reserve the rank that it claims, and does not delay the start. Rank 0 drops a
// connection that sends other bytes, is closed, or sends no proof for 10 s. Rank 0 refuses a hello with another
// version, size or job, and a hello of a rank that is already a member. In these cases, it answers with a failure,
// which ends only the process that has sent the hello. Each refusal is logged once.
//
// After a failure of the rendezvous, rank 0 answers every further hello with the cause of the failure (answer_with()).
#pragma once

#include <poll.h>

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/rendezvous_link.hpp"
#include "collectives/deadline.hpp"

namespace collectives::tcp {

class Greetings {
 public:
  struct Arrival {
    Rank rank;
    Link link;
  };

  explicit Greetings(const World& world) : world_(world), informed_(static_cast<std::size_t>(world.size)) {}

  /// Accepts all waiting connections. If no file descriptor is left, drops connections that have sent no proof within
  /// 500 ms. Returns an errno if no descriptor is left and there is no connection to drop, otherwise 0.
  int accept(const Socket& listener);
  /// Begins the three steps with a new connection.
  void add(Socket socket);
  /// Advances all connections. Returns those that have sent their proof. is_member[r] is true if rank r is
  /// a member.
  std::vector<Arrival> step(const std::vector<bool>& is_member);
  /// Adds the events that step() and accept() wait for. Returns how long the wait may last, in milliseconds.
  int add_interests(std::vector<pollfd>& entries, const Socket& listener) const;
  void clear() { strangers_.clear(); }
  std::size_t size() const { return strangers_.size(); }

  /// Sends `failure` to all ranks that greet from now on, and to those that have sent a hello.
  void answer_with(std::shared_ptr<const std::string> failure);
  /// Returns whether rank `rank` has received the failure.
  bool has_failure(Rank rank) const { return informed_[static_cast<std::size_t>(rank)]; }

  /// Logs a refusal, unless the same was logged before. At most 16 refusals are logged.
  void note(const std::string& refusal);
  /// Returns the last refusal, or an empty text.
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  struct Stranger {
    Link link;
    Deadline::Clock::time_point since = Deadline::Clock::now();
    std::optional<Rank> rank = {};  // Claimed rank, once a hello has arrived.
    std::uint64_t number = 0;       // Random number that the proof must contain.
  };
  enum class State : std::uint8_t { open, proven, dropped };

  State examine_records(Stranger& stranger, const std::vector<bool>& is_member);
  State examine(Stranger& stranger, const Record& record, const std::vector<bool>& is_member);
  State greet(Stranger& stranger, const Hello& hello, const std::vector<bool>& is_member);
  State refuse(Stranger& stranger, Rank rank, const std::string& refusal);
  State drop(const std::string& refusal);
  State refuse_second(Stranger& stranger, Rank rank);

  const World& world_;
  std::list<Stranger> strangers_;
  std::vector<bool> informed_;  // Whether each rank has received the failure.
  std::shared_ptr<const std::string> failure_;
  bool out_of_descriptors_ = false;
  std::set<std::string> logged_;
  std::string last_refusal_;
};

}  // namespace collectives::tcp
