// Functions of the control messages, which failure detectors of different hosts send to one another. They convert
// messages to bytes, and check and convert received bytes.
#include "monitoring/control_messages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

namespace collectives {
namespace {

/// Reads the parts of a message one after another. skip(), number() and line() return false if the next bytes are not
/// the expected part.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool at_end() const noexcept { return rest_.empty(); }
  std::string_view rest() const noexcept { return rest_; }
  bool skip(std::string_view expected) noexcept {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  template <class Number>
  bool number(Number& value) noexcept {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return false;
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return true;
  }
  /// Reads up to the next end of line.
  bool line(std::string& text) {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return false;
    text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return true;
  }

 private:
  std::string_view rest_;
};

bool is_code(unsigned code) noexcept {
  return code >= static_cast<unsigned>(Errc::invalid_argument) && code <= static_cast<unsigned>(Errc::system);
}

}  // namespace

std::string AbortMessage::encode() const {
  return fmt::format("A {} {}\n{}\n{}", static_cast<unsigned>(failure.code), failure.peer, failure.operation,
                     failure.text);
}

std::optional<AbortMessage> AbortMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  AbortMessage message;
  Failure& failure = message.failure;
  unsigned code = 0;
  if (!reader.skip("A ") || !reader.number(code) || !is_code(code) || !reader.skip(" ") ||
      !reader.number(failure.peer) || failure.peer < kNoRank || !reader.skip("\n") || !reader.line(failure.operation))
    return std::nullopt;
  failure.code = static_cast<Errc>(code);
  failure.text = reader.rest();
  return message;
}

std::string ArrivalMessage::encode() const {
  std::string bytes = fmt::format("R {}", sequence);
  for (const auto& [rank, signature] : arrived) bytes += fmt::format(" {} {}", rank, fmt::join(pack(signature), " "));
  return bytes;
}

std::optional<ArrivalMessage> ArrivalMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  ArrivalMessage message;
  if (!reader.skip("R ") || !reader.number(message.sequence)) return std::nullopt;
  while (!reader.at_end()) {
    Rank rank = kNoRank;
    SignatureWords words{};
    if (!reader.skip(" ") || !reader.number(rank) || rank < 0) return std::nullopt;
    for (std::uint64_t& word : words)
      if (!reader.skip(" ") || !reader.number(word)) return std::nullopt;
    message.arrived.push_back({rank, unpack(words)});
  }
  return message;
}

std::string LeaveMessage::encode() const { return fmt::format("L {}", completed); }

std::optional<LeaveMessage> LeaveMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  LeaveMessage message;
  if (!reader.skip("L ") || !reader.number(message.completed) || !reader.at_end()) return std::nullopt;
  return message;
}

ControlMessage decode_control_message(std::string_view bytes) {
  if (auto message = AbortMessage::decode(bytes)) return *std::move(message);
  if (auto message = ArrivalMessage::decode(bytes)) return *std::move(message);
  if (auto message = LeaveMessage::decode(bytes)) return *message;
  return {};
}

}  // namespace collectives
