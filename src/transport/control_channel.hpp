// Control channel: carries the control messages of a wire. A wire is the object by which a rank exchanges messages with
// the ranks of other hosts. A control message is a short text, such as the report of an error. Control messages are
// sent separately from the data of calls.
//
// A wire over TCP or UCX owns one control channel. The channel sends control messages. It stores arrived control
// messages until the caller of the wire takes them. A wire over TCP uses TcpControlChannel, which has separate TCP
// connections for control messages. A wire over UCX uses UcxControlChannel, which sends them as active messages of UCX.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/types.hpp"

namespace collectives {

/// Control messages between this rank and ranks of other hosts. The texts of one sender arrive in order.
class ControlChannel {
 public:
  using Text = std::pair<Rank, std::string>;  ///< a control message: its sender and its text

  ControlChannel() = default;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  virtual ~ControlChannel() = default;

  /// Sends `text` to `to`. Drops the text if the channel already holds too many unsent texts.
  virtual void post(Rank to, std::string_view text) = 0;
  /// Returns whether the channel still holds a text for `to` that the kernel or UCX has not taken.
  virtual bool has_unsent(Rank to) = 0;
  /// Stores the texts that have arrived. Does not block.
  virtual void read() = 0;

  /// Removes the oldest stored text and returns it. Returns nothing if none is stored.
  std::optional<Text> take() {
    if (arrived_.empty()) return std::nullopt;
    Text next = std::move(arrived_.front());
    arrived_.pop_front();
    return next;
  }
  bool has_texts() const { return !arrived_.empty(); }

 protected:
  void store(Rank from, std::string text) { arrived_.emplace_back(from, std::move(text)); }

 private:
  std::deque<Text> arrived_;
};

}  // namespace collectives
