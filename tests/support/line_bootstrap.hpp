// A bootstrap of two ranks, a process and its child: they exchange bytes over a Line, the socket between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/bootstrap.hpp"
#include "support/child.hpp"

namespace collectives::testing {

class LineBootstrap final : public Bootstrap {
 public:
  LineBootstrap(Rank rank, Line& line) : rank_(rank), line_(line) {}
  std::string_view name() const noexcept override { return "line"; }
  Rank rank() const noexcept override { return rank_; }
  int size() const noexcept override { return 2; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    std::vector<std::string> all(2);
    for (Rank from = 0; from < 2; ++from) {
      std::string& text = all[static_cast<std::size_t>(from)];
      if (from == rank_) {
        text = mine;
        line_.put(text.size());
        for (const char c : text) line_.put(static_cast<unsigned char>(c));
      } else {
        text.resize(line_.take());
        for (char& c : text) c = static_cast<char>(line_.take());
      }
    }
    return all;
  }

 private:
  Rank rank_;
  Line& line_;
};

}  // namespace collectives::testing
