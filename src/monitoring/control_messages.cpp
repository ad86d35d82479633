// Implementation of the control messages, which failure detectors of different hosts send to one another. Most control
// messages report a failure, or the calls that ranks have entered (arrival records). This file converts control
// messages to bytes, and received bytes to control messages. It checks received bytes, because another process has sent
// them.
#include "monitoring/control_messages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>

namespace collectives {
namespace {

/// Reader of a message, which reads one part after another. Each function reads one part. It returns false if the
/// message does not continue with this kind of part.
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
  /// Reads `length` bytes.
  bool bytes(std::size_t length, std::string_view& value) noexcept {
    if (length > rest_.size()) return false;
    value = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return true;
  }
  /// Reads the text up to the next end of line.
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

std::string encoded(const CallDetails& details) {
  std::string bytes;
  const auto add = [&](Detail kind, const std::string& value) {
    if (!value.empty()) append_detail(bytes, kind, value, kDetailBytes);
  };
  add(Detail::name, details.name);
  add(Detail::op, details.op);
  add(Detail::compression, details.compression);
  add(Detail::refusal, details.refusal);
  if (!details.lengths.empty()) append_parts(bytes, {details.lengths, details.displacements});
  return bytes;
}

bool is_next(const Arrived& before, const Arrived& next) {
  return before.rank == next.rank && before.call.sequence + 1 == next.call.sequence &&
         before.call.hash.after == next.call.hash.before && before.call.signature == next.call.signature &&
         before.call.details == next.call.details;
}

void append(std::string& bytes, const std::vector<Arrived>& records) {
  const Arrived* before = nullptr;
  for (const Arrived& record : records) {
    const CallRecord& call = record.call;
    if (before != nullptr && is_next(*before, record)) {
      bytes += fmt::format(" ={}", call.hash.after);
    } else {
      const std::string details = encoded(call.details);
      bytes += fmt::format(" {} {} {} {} {} {}:{}", record.rank, call.sequence, call.hash.before, call.hash.after,
                           fmt::join(pack(call.signature), " "), details.size(), details);
    }
    before = &record;
  }
}

/// Reads an arrival record that has all fields, after the space before it. The short form of a record, which begins
/// with "=", is not read here.
bool read_record(Reader& reader, Arrived& record) {
  CallRecord& call = record.call;
  if (!reader.number(record.rank) || record.rank < 0) return false;
  const auto next = [&](std::uint64_t& value) { return reader.skip(" ") && reader.number(value); };
  SignatureWords words{};
  if (!next(call.sequence) || !next(call.hash.before) || !next(call.hash.after)) return false;
  for (std::uint64_t& word : words)
    if (!next(word)) return false;
  std::uint64_t length = 0;
  std::string_view details;
  if (!next(length) || length > kDetailBytes || !reader.skip(":") || !reader.bytes(length, details)) return false;
  call.signature = unpack(words);
  call.details = decode_details(details);
  return true;
}

/// Reads arrival records up to the end of the message.
bool read_records(Reader& reader, std::vector<Arrived>& records) {
  while (!reader.at_end()) {
    if (!reader.skip(" ") || records.size() == kMostRecords) return false;
    if (reader.skip("=")) {
      if (records.empty()) return false;
      Arrived next = records.back();
      ++next.call.sequence;
      next.call.hash.before = next.call.hash.after;
      if (!reader.number(next.call.hash.after)) return false;
      records.push_back(std::move(next));
    } else if (!read_record(reader, records.emplace_back())) {
      return false;
    }
  }
  return true;
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
  std::string bytes = "R";
  append(bytes, records);
  return bytes;
}

std::optional<ArrivalMessage> ArrivalMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  ArrivalMessage message;
  if (!reader.skip("R") || !read_records(reader, message.records)) return std::nullopt;
  return message;
}

std::string LeaveMessage::encode() const {
  std::string bytes = fmt::format("L {}", completed);
  append(bytes, records);
  return bytes;
}

std::optional<LeaveMessage> LeaveMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  LeaveMessage message;
  if (!reader.skip("L ") || !reader.number(message.completed) || !read_records(reader, message.records))
    return std::nullopt;
  return message;
}

std::string WaitMessage::encode() const { return fmt::format("W {}", word); }

std::optional<WaitMessage> WaitMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  WaitMessage message;
  if (!reader.skip("W ") || !reader.number(message.word) || !reader.at_end()) return std::nullopt;
  return message;
}

std::string PingMessage::encode() const { return fmt::format("{} {}", is_echo ? 'E' : 'P', number); }

std::optional<PingMessage> PingMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  PingMessage message{.is_echo = bytes.starts_with('E')};
  if (!reader.skip(message.is_echo ? "E " : "P ") || !reader.number(message.number) || !reader.at_end())
    return std::nullopt;
  return message;
}

std::string MemberMessage::encode() const {
  return fmt::format("G {} {} {} {} {}\n{}\n{}", number, answered, name, creation, round, list, text);
}

std::optional<MemberMessage> MemberMessage::decode(std::string_view bytes) {
  Reader reader(bytes);
  MemberMessage message;
  if (!reader.skip("G")) return std::nullopt;
  for (std::uint64_t* const number :
       {&message.number, &message.answered, &message.name, &message.creation, &message.round})
    if (!reader.skip(" ") || !reader.number(*number)) return std::nullopt;
  if (!reader.skip("\n") || !reader.line(message.list)) return std::nullopt;
  message.text = reader.rest();
  return message;
}

ControlMessage decode_control_message(std::string_view bytes) {
  if (auto message = AbortMessage::decode(bytes)) return *std::move(message);
  if (auto message = ArrivalMessage::decode(bytes)) return *std::move(message);
  if (auto message = LeaveMessage::decode(bytes)) return *std::move(message);
  if (auto message = WaitMessage::decode(bytes)) return *message;
  if (auto message = PingMessage::decode(bytes)) return *message;
  if (auto message = MemberMessage::decode(bytes)) return *std::move(message);
  return {};
}

}  // namespace collectives
