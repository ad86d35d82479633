// Implementation of the parser of faults. A fault is a failure that the library causes for a test on request of the
// user. The text "kill rank=2 call=17" requests a fault, for example (faults.hpp). A scanner splits such a text into
// words. It stores the position of each word for error texts. Tables list the settings that each kind of fault needs or
// permits.
#include "injection/faults.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <system_error>

#include "collectives/error.hpp"

namespace collectives {
namespace {

/// Word of the text, with its position: the number of its first character, counted from 1.
struct Word {
  std::string_view text;
  std::size_t position = 0;
};

/// Words in the text that stand for the enumerators of Fault::Kind, in the same order. The next array has the words for
/// Fault::Phase.
constexpr std::array<std::string_view, 6> kKindWords = {"delay", "stop", "kill", "disconnect", "drop", "cut"};
constexpr std::array<std::string_view, 4> kPhaseWords = {"begin", "sent", "wait", "end"};

/// Settings that one kind of fault needs, and settings that it permits.
struct Settings {
  std::vector<std::string_view> needed, optional;
};
const Settings& settings_of(Fault::Kind kind) {
  static const std::array<Settings, 6> table = {{{{"rank", "call", "ms"}, {"phase"}},
                                                 {{"rank", "call"}, {"phase"}},
                                                 {{"rank", "call"}, {"phase"}},
                                                 {{"rank", "call"}, {"phase"}},
                                                 {{"from", "to", "call"}, {"count"}},
                                                 {{"from", "to", "call"}, {"phase"}}}};
  return table[static_cast<std::size_t>(kind)];
}

template <std::size_t size>
std::optional<std::size_t> index_of(const std::array<std::string_view, size>& words, std::string_view word) {
  const auto* const found = std::ranges::find(words, word);
  if (found == words.end()) return std::nullopt;
  return static_cast<std::size_t>(found - words.begin());
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class FaultParser {
 public:
  FaultParser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  std::vector<Fault> parse() {
    std::vector<Fault> faults;
    if (const std::vector<Word> words = next_fault(); words.size() == 1 && words[0].text == "none" && is_at_end())
      return faults;
    for (at_ = 0; !is_blank_to_end();) {
      const std::size_t begin = at_;
      const std::vector<Word> words = next_fault();
      if (words.empty()) refuse(begin + 1, "a fault is missing before the semicolon");
      faults.push_back(fault_of(words));
    }
    return faults;
  }

 private:
  [[noreturn]] void refuse(std::size_t position, const std::string& why) const {
    throw Error(Errc::invalid_argument, fmt::format("{}=\"{}\": at character {}: {}", source_, text_, position, why));
  }
  bool is_at_end() const { return at_ >= text_.size(); }
  bool is_blank_to_end() const { return std::ranges::all_of(text_.substr(at_), is_space); }

  /// Returns the words up to the next semicolon. Skips the semicolon.
  std::vector<Word> next_fault() {
    std::vector<Word> words;
    while (!is_at_end() && text_[at_] != ';') {
      const std::size_t begin = at_;
      while (!is_at_end() && text_[at_] != ';' && !is_space(text_[at_])) ++at_;
      if (at_ > begin)
        words.push_back({text_.substr(begin, at_ - begin), begin + 1});
      else
        ++at_;
    }
    if (!is_at_end()) ++at_;
    return words;
  }

  Fault fault_of(const std::vector<Word>& words) const {
    const auto kind = index_of(kKindWords, words[0].text);
    if (!kind)
      refuse(words[0].position,
             fmt::format("unknown fault \"{}\"; known: {}", words[0].text, fmt::join(kKindWords, ", ")));
    Fault fault;
    fault.kind = static_cast<Fault::Kind>(*kind);
    const auto& [needed, optional] = settings_of(fault.kind);
    std::vector<std::string_view> seen;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::size_t equals = words[i].text.find('=');
      const std::string_view key = words[i].text.substr(0, equals);
      if (std::ranges::count(needed, key) + std::ranges::count(optional, key) == 0 || equals == key.npos)
        refuse(words[i].position, fmt::format("\"{}\" is no setting of {}; it needs {}=, and takes {}=", words[i].text,
                                              words[0].text, fmt::join(needed, "=, "), fmt::join(optional, "=, ")));
      if (std::ranges::count(seen, key) > 0) refuse(words[i].position, fmt::format("{}= is given twice", key));
      seen.push_back(key);
      set(fault, key, {words[i].text.substr(equals + 1), words[i].position + equals + 1});
    }
    for (const std::string_view key : needed)
      if (std::ranges::count(seen, key) == 0)
        refuse(words[0].position, fmt::format("{} needs {}=", words[0].text, key));
    check(fault, words[0].position);
    return fault;
  }

  void set(Fault& fault, std::string_view key, const Word& value) const {
    constexpr std::uint64_t kMostRanks = 1 << 20, kMostCalls = std::uint64_t{1} << 62, kHour = 3'600'000;
    if (key == "rank" || key == "from") fault.rank = static_cast<Rank>(number(value, 0, kMostRanks));
    if (key == "to") fault.to = static_cast<Rank>(number(value, 0, kMostRanks));
    if (key == "call") fault.call = number(value, 0, kMostCalls);
    if (key == "ms") fault.delay = std::chrono::milliseconds(number(value, 1, kHour));
    if (key == "count") fault.datagrams = static_cast<unsigned>(number(value, 1, 1'000'000));
    if (key != "phase") return;
    const auto phase = index_of(kPhaseWords, value.text);
    if (!phase)
      refuse(value.position, fmt::format("unknown phase \"{}\"; known: {}", value.text, fmt::join(kPhaseWords, ", ")));
    fault.phase = static_cast<Fault::Phase>(*phase);
  }

  std::uint64_t number(const Word& word, std::uint64_t least, std::uint64_t most) const {
    std::uint64_t value = 0;
    const char* const end = word.text.data() + word.text.size();
    const auto [behind, error] = std::from_chars(word.text.data(), end, value);
    if (error != std::errc{} || behind != end || value < least || value > most)
      refuse(word.position, fmt::format("\"{}\" is no number from {} to {}", word.text, least, most));
    return value;
  }

  /// Refuses combinations of settings that no wire (transport between hosts) can perform.
  void check(const Fault& fault, std::size_t position) const {
    using Kind = Fault::Kind;
    if (fault.rank == fault.to) refuse(position, fmt::format("rank {} sends itself no messages", fault.rank));
    if (fault.call > 0) return;
    if (fault.kind == Kind::disconnect || fault.kind == Kind::drop || fault.kind == Kind::cut)
      refuse(position, fmt::format("{} has no meaning at call 0, the construction: no connection exists yet",
                                   kKindWords[static_cast<std::size_t>(fault.kind)]));
    if (fault.phase == Fault::Phase::wait)
      refuse(position, "phase wait has no meaning at call 0, the construction; known: begin, sent, end");
  }

  const std::string_view text_, source_;
  std::size_t at_ = 0;
};

}  // namespace

std::string Fault::text() const {
  std::string text(kKindWords[static_cast<std::size_t>(kind)]);
  text += to < 0 ? fmt::format(" rank={}", rank) : fmt::format(" from={} to={}", rank, to);
  text += fmt::format(" call={}", call);
  if (kind == Kind::delay) text += fmt::format(" ms={}", delay.count());
  if (kind == Kind::drop)
    text += fmt::format(" count={}", datagrams);
  else
    text += fmt::format(" phase={}", kPhaseWords[static_cast<std::size_t>(phase)]);
  return text;
}

std::vector<Fault> parse_faults(std::string_view text, std::string_view source) {
  return FaultParser(text, source).parse();
}

void check_ranks(const std::vector<Fault>& faults, int ranks, Rank self) {
  for (const Fault& fault : faults)
    for (const Rank rank : {fault.rank, fault.to})
      if (rank >= ranks)
        throw Error(
            Errc::invalid_argument,
            fmt::format("construction: injected fault \"{}\": there is no rank {}: the communicator has ranks 0 "
                        "to {}",
                        fault.text(), rank, ranks - 1),
            self, kNoRank, "construction");
}

}  // namespace collectives
