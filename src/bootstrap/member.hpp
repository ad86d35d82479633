// Common base class of all ranks of a rendezvous over TCP (rendezvous.hpp). Rank 0 is a Hub (hub.cpp). Every other
// rank is a Spoke (spoke.cpp).
//
// In an exchange each rank contributes bytes and gets the bytes of all ranks. The base class checks the length of a
// contribution. It also stores the error that has ended the rendezvous. Every later exchange throws the stored error.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/world.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/deadline.hpp"
#include "collectives/error.hpp"

namespace collectives::tcp {

constexpr std::size_t kMaxContribution = std::size_t{64} << 20;  // Maximum contribution, in bytes.

inline double seconds_since(Deadline::Clock::time_point start) {
  return std::chrono::duration<double>(Deadline::Clock::now() - start).count();
}

class Member : public Bootstrap {
 public:
  explicit Member(const World& world) : world_(world) {}
  std::string_view name() const noexcept override { return "environment"; }
  Rank rank() const noexcept override { return world_.rank; }
  int size() const noexcept override { return world_.size; }

  std::vector<std::string> all_gather(std::string_view mine, Deadline deadline) final {
    if (end_) throw *end_;
    if (mine.size() > kMaxContribution) {
      throw Error(Errc::invalid_argument,
                  fmt::format("all_gather of {} bytes; the most is {}", mine.size(), kMaxContribution), rank());
    }
    return exchange(mine, deadline);
  }

 protected:
  virtual std::vector<std::string> exchange(std::string_view mine, Deadline) = 0;

  [[noreturn]] void end(Errc code, const std::string& what, Rank culprit) {
    end_.emplace(code, what, rank(), culprit);
    throw *end_;
  }
  std::size_t ranks() const { return static_cast<std::size_t>(size()); }

  const World world_;

 private:
  std::optional<Error> end_;
};

}  // namespace collectives::tcp
