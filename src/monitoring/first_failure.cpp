// Implementation of FirstFailure. After a failure, all ranks of a communicator throw the same error: the first one that
// a rank has reported. This file writes that error to the abort block, a part of the host's shared memory. The ranks of
// the host read the error from the abort block.
#include "monitoring/first_failure.hpp"

#include <cstring>

#include "base/errc.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"

namespace collectives {
namespace {

using Clock = std::chrono::steady_clock;

/// Copies `text`, cut to kSpace bytes including a zero byte at the end. Replaces bytes that are not printable, so that
/// the text is one line.
template <std::size_t kSpace>
void copy_printable(char (&to)[kSpace], std::string_view text) noexcept {
  const std::size_t bytes = text.copy(to, kSpace - 1);
  make_printable(to, bytes);
  to[bytes] = '\0';
}

/// Returns the text in an array, up to the first zero byte. If there is none, returns the whole array.
template <std::size_t kSpace>
std::string text_in(const char (&from)[kSpace]) {
  return {from, ::strnlen(from, kSpace)};
}

}  // namespace

void FirstFailure::store(Errc code, Rank peer, std::string_view operation, std::string_view text) noexcept {
  std::uint32_t state = kEmpty;
  if (!block_.state.compare_exchange_strong(state, kBeingWritten)) return;
  block_.code = static_cast<std::uint32_t>(code);
  block_.peer = peer;
  copy_printable(block_.operation, operation);
  copy_printable(block_.text, text);
  block_.state.store(kComplete, std::memory_order_release);
}

std::optional<Failure> FirstFailure::read() const {
  if (block_.state.load(std::memory_order_acquire) != kComplete) return std::nullopt;
  return Failure{errc_of(block_.code), block_.peer, text_in(block_.operation), text_in(block_.text)};
}

std::optional<Failure> FirstFailure::wait(std::chrono::nanoseconds patience) const {
  const auto until = Clock::now() + patience;
  for (Backoff backoff; block_.state.load(std::memory_order_acquire) == kBeingWritten && Clock::now() < until;)
    backoff.wait();
  return read();
}

}  // namespace collectives
