// Control messages of a wire: short texts between ranks of different hosts, beside the data.
//
// A wire owns one channel. The channel sends texts, and stores those that have arrived until the caller of the wire
// takes them. TcpControlChannel sends them on connections of their own, UcxControlChannel as active messages of UCX.
#pragma once

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/types.hpp"

namespace collectives {

/// The control messages between this rank and all ranks of other hosts. The texts of one sender arrive in order.
class ControlChannel {
 public:
  using Text = std::pair<Rank, std::string>;  ///< A control message behind its sender.

  ControlChannel() = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  virtual ~ControlChannel() = default;

  /// Sends `text` to `to`. Drops it if the channel has too many unsent texts already.
  virtual void post(Rank to, std::string_view text) = 0;
  /// Returns whether the kernel or the network still has to take a text for `to`.
  virtual bool has_unsent(Rank to) = 0;
  /// Stores the texts that have arrived. Does not block.
  virtual void read() = 0;

  /// Returns the next text, or nothing if none is stored.
  std::optional<Text> take() {
    if (arrived_.empty()) return std::nullopt;
    Text next = std::move(arrived_.front());
    arrived_.pop_front();
    return next;
  }
  bool has_texts() const { return !arrived_.empty(); }
  bool has_texts_from(Rank rank) const {
    return std::ranges::any_of(arrived_, [rank](const Text& text) { return text.first == rank; });
  }

 protected:
  void store(Rank from, std::string text) { arrived_.emplace_back(from, std::move(text)); }

 private:
  std::deque<Text> arrived_;
};

}  // namespace collectives
