// Output of collectives_run: its own messages, and with --prefix also the output of the ranks. Each line of a rank has
// the rank's number in front.
#pragma once

#include <string>
#include <string_view>

namespace collectives::run {

/// Writes a line to stderr. An error of the write is ignored.
void say(const std::string& line);

/// Copies one stream of a rank line by line, with the number of the rank in front.
class Forwarder {
 public:
  Forwarder() = default;
  Forwarder(int rank, int from, int to) : rank_(rank), from_(from), to_(to) {}

  int fd() const { return from_; }

  /// Copies a block of the available output. Returns false if no output is available.
  bool forward();
  /// Copies the rest of the output after the process group of the rank has ended. A process that has left the group may
  /// write without end. At most 64 blocks of 16 KiB are therefore read, the maximum content of a pipe.
  void drain();

 private:
  void finish();
  void pass_on(std::string_view line);
  void close_source();

  int rank_ = 0, from_ = -1, to_ = -1;
  std::string line_;  // beginning of a line without its end
};

}  // namespace collectives::run
