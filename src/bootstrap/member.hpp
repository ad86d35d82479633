// Base class of the ranks in a rendezvous over TCP. In a rendezvous, all ranks connect to rank 0 (rendezvous.hpp). Rank
// 0 is a Hub (hub.cpp), and every other rank is a Spoke (spoke.cpp).
//
// In an exchange, each rank contributes bytes and gets the bytes of all ranks. This class checks the length of the
// bytes that this rank contributes. It also stores the error that has ended the rendezvous. Every later exchange throws
// this error again.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/records.hpp"
#include "bootstrap/sockets.hpp"
#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {

class Member : public Bootstrap {
 public:
  explicit Member(const World& world) : world_(world) {}
  std::string_view name() const noexcept override { return "environment"; }
  Rank rank() const noexcept override { return world_.rank; }
  int size() const noexcept override { return world_.size; }

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) final {
    rethrow_end();
    if (const std::size_t most = max_contribution(ranks()); mine.size() > most && size() > 1) {
      throw Error(Errc::invalid_argument,
                  fmt::format("all_gather of {} bytes; the most is {} with {} ranks", mine.size(), most, size()),
                  rank());
    }
    return exchange(mine, deadline);
  }

 protected:
  virtual std::vector<std::string> exchange(std::string_view mine, Deadline) = 0;

  /// Returns the action for which this rank waits as text, such as "come to the rendezvous at 10.0.0.1:29500". Log and
  /// error texts contain it.
  std::string come_to_rendezvous() const { return "come to the rendezvous at " + place_of(world_); }

  /// Returns whether this rank leaves without an error: the rendezvous has not failed, and no exception has been thrown
  /// since this object was made.
  bool leaves_well() const { return !end_ && std::uncaught_exceptions() <= exceptions_; }
  /// Throws the error that has ended the rendezvous, if any.
  void rethrow_end() const {
    if (end_) throw *end_;
  }

  [[noreturn]] void end(Errc code, const std::string& what, Rank culprit) { end(Error(code, what, rank(), culprit)); }
  [[noreturn]] void end(const Error& error) {
    end_.emplace(error);
    throw *end_;
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  const World world_;

 private:
  std::optional<Error> end_;
  int exceptions_ = std::uncaught_exceptions();  // Number of exceptions in flight when this object was made.
};

}  // namespace collectives::tcp
