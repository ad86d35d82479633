// Greetings: connections to rank 0 that are no members of the rendezvous yet (rendezvous.hpp).
//
// Any process may connect to the port of rank 0 and send any bytes. A connection becomes a member in three steps:
//
//   hello   the process sends version, rank, size and job
//   seen    rank 0 answers with a random number
//   proof   the process sends the number back
//
// A connection without proof occupies nothing: neither its rank nor the start depend on it. It is dropped if it sends
// other bytes, closes, or is silent for 10 s. A well-formed hello that does not fit is answered with a failure, which
// ends only the process that sent it. A hello does not fit if it has another version, size or job, or a rank that is a
// member. Refusals are logged once each.
//
// After a failure of the rendezvous, all further greetings are answered with the cause (answer_with()).
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

  /// Accepts all waiting connections. If no descriptor is left, drops connections that have sent no proof in 500 ms.
  /// Returns an errno if no descriptor is left and there is no connection to drop, otherwise 0.
  int accept(const Socket& listener);
  /// Begins with a connection.
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
