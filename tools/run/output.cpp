// Functions that print the messages of collectives_run, which starts ranks, and copy the output of the ranks line by
// line.
#include "tools/run/output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace collectives::run {
namespace {

constexpr std::size_t kLongestLine = 65536;  // maximum bytes of a line; the rest becomes a line of its own

}  // namespace

void say(const std::string& line) {
  const std::string text = "collectives_run: " + line + "\n";
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

bool Forwarder::forward() {
  std::array<char, 16384> buffer;
  if (from_ < 0) return false;
  const ssize_t bytes = ::read(from_, buffer.data(), buffer.size());
  if (bytes < 0) return errno == EINTR;
  if (bytes == 0) finish();
  line_.append(buffer.data(), static_cast<std::size_t>(bytes));
  for (auto end = line_.find('\n'); end != line_.npos; end = line_.find('\n')) {
    pass_on(line_.substr(0, end));
    line_.erase(0, end + 1);
  }
  if (line_.size() > kLongestLine) {
    pass_on(line_);
    line_.clear();
  }
  return bytes > 0;
}

void Forwarder::drain() {
  for (int reads = 0; reads < 64 && forward(); ++reads) {
  }
  finish();
}

void Forwarder::finish() {
  if (!line_.empty()) pass_on(line_);
  line_.clear();
  close_source();
}

void Forwarder::pass_on(std::string_view line) {
  const std::string text = fmt::format("[{}] {}\n", rank_, line);
  for (std::size_t done = 0; done < text.size() && from_ >= 0;) {
    const ssize_t bytes = ::write(to_, text.data() + done, text.size() - done);
    if (bytes > 0) done += static_cast<std::size_t>(bytes);
    // The program that reads the output has closed it. If this process also stops reading, the rank gets SIGPIPE at its
    // next write.
    if (bytes < 0 && errno != EINTR) close_source();
  }
}

void Forwarder::close_source() {
  if (from_ >= 0) ::close(from_);
  from_ = -1;
}

}  // namespace collectives::run
