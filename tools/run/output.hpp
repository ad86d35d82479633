// What collectives_run prints: words of its own, and what the ranks say with their numbers in front.
#pragma once

#include <string>
#include <string_view>

namespace collectives::run {

/// To stderr; if nobody reads it any more, there is nobody to tell.
void say(const std::string& line);

/// What a rank writes to one of its streams, passed on line by line with the rank in front.
class Forwarder {
 public:
  Forwarder() = default;
  Forwarder(int rank, int from, int to) : rank_(rank), from_(from), to_(to) {}

  int fd() const { return from_; }

  /// Passes on some of what is there now; false when nothing is.
  bool forward();
  /// Passes on the rest when nobody of ours can write any more. A process that left its group still may, so no more
  /// than a pipe holds is waited for.
  void drain();

 private:
  void finish();
  void pass_on(std::string_view line);
  void close_source();

  int rank_ = 0, from_ = -1, to_ = -1;
  std::string line_;  // begun and not ended
};

}  // namespace collectives::run
