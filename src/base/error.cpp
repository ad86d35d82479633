// Implementation of Error, the exception class of the library, and the names of its error codes. The text of an Error
// may contain bytes that another process has sent. The constructor therefore replaces all bytes that are not printable.
#include "collectives/error.hpp"

#include <utility>

#include "base/text.hpp"

namespace collectives {
namespace {

/// Returns the text without bytes that control a terminal. Keeps the ends of lines.
std::string printable_lines(std::string text) {
  make_printable(text.data(), text.size(), "\n");
  return text;
}

}  // namespace

std::string_view to_string(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::unsupported: return "unsupported";
    case Errc::mismatch: return "mismatch";
    case Errc::timeout: return "timeout";
    case Errc::peer_lost: return "peer_lost";
    case Errc::aborted: return "aborted";
    case Errc::bootstrap: return "bootstrap";
    case Errc::system: return "system";
  }
  return "unknown error";
}

Error::Error(Errc code, const std::string& what, Rank rank, Rank peer, std::string operation)
    : std::runtime_error(printable_lines(what)),
      code_(code),
      rank_(rank),
      peer_(peer),
      operation_(printable_lines(std::move(operation))) {}

// The destructor is defined in this file, so that only one shared library contains the type information of Error.
// Otherwise other shared libraries might not catch an Error.
Error::~Error() = default;

}  // namespace collectives
