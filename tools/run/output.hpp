// Output of collectives_run, which starts ranks. It prints messages of its own. With the option --prefix, it also
// copies the output of the ranks, and puts the number of the rank in front of each line.
#pragma once

#include <string>
#include <string_view>

namespace collectives::run {

/// Writes a line to stderr. An error of the write is ignored.
void say(const std::string& line);

/// Copies stdout or stderr of one rank line by line, with the number of the rank in front of each line.
class Forwarder {
 public:
  Forwarder() = default;
  Forwarder(int rank, int from, int to) : rank_(rank), from_(from), to_(to) {}

  int fd() const { return from_; }

  /// Copies at most one block of the available output. Returns false if none is available.
  bool forward();
  /// Copies the rest of the output after the process group of the rank has ended. Reads at most 64 blocks of 16 KiB,
  /// the maximum content of a pipe. Without this limit, a process that has left the group could write without end.
  void drain();

 private:
  void finish();
  void pass_on(std::string_view line);
  void close_source();

  int rank_ = 0, from_ = -1, to_ = -1;
  std::string line_;  // beginning of a line without its end
};

}  // namespace collectives::run
