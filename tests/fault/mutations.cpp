// Implementation of mutations. The file replaces the global operators new and delete, which count the bytes in use.
#include "fault/mutations.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <new>
#include <set>
#include <stdexcept>

#include "collectives/error.hpp"

namespace {

// Bytes in use of operator new, and their maximum since the last input began.
std::atomic<std::ptrdiff_t> bytes_in_use{0}, most_in_use{0};

/// Returns null if there is no memory.
void* try_allocate(std::size_t bytes) noexcept {
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) return nullptr;
  const std::ptrdiff_t used = bytes_in_use += static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  std::ptrdiff_t most = most_in_use;
  while (used > most && !most_in_use.compare_exchange_weak(most, used)) continue;
  return memory;
}

void* allocate(std::size_t bytes) {
  if (void* const memory = try_allocate(bytes)) return memory;
  throw std::bad_alloc();
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  bytes_in_use -= static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return try_allocate(bytes); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace collectives::testing {
namespace {

constexpr double kMostSeconds =
    20;  // an input that takes longer is a fault; a signal ends the process after twice that
constexpr std::uint64_t kInputsOfAlarm = 64;  // the alarm is set anew after so many inputs, because that takes 1 us
constexpr std::size_t kMostFaults = 10;

/// SplitMix64. A larger generator would take longer to seed than an input takes to change.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t number) : state_(seed) { state_ = (*this)() + number; }
  std::uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t word = (state_ ^ (state_ >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
  }

 private:
  std::uint64_t state_;
};

std::size_t below(Random& random, std::size_t end) { return end == 0 ? 0 : random() % end; }

constexpr std::uint64_t kWords[] = {0,
                                    1,
                                    0x7f,
                                    0x80,
                                    0xff,
                                    0xffff,
                                    0x7fffffff,
                                    0x80000000,
                                    0xffffffff,
                                    0x100000000,
                                    0x3fffffffffffffff,
                                    0x7fffffffffffffff,
                                    0x8000000000000000,
                                    0xffffffffffffffff};
constexpr std::string_view kValues[] = {"-1",
                                        "0",
                                        "1e999",
                                        "18446744073709551615",
                                        "18446744073709551616",
                                        "1e18",
                                        "-1e-9",
                                        "2147483648",
                                        "-9223372036854775808",
                                        "1000000000",
                                        "0.5",
                                        "null",
                                        "true",
                                        "\"3\"",
                                        "[]",
                                        "1",
                                        "\"\"",
                                        "{}",
                                        "false",
                                        "[1]",
                                        "[\"\"]"};

void flip_bits(std::string& bytes, Random& random) {
  for (std::size_t i = 0, flips = 1 + below(random, 8); i < flips && !bytes.empty(); ++i)
    bytes[below(random, bytes.size())] ^= static_cast<char>(1u << below(random, 8));
}

void set_word(std::string& bytes, Random& random) {
  const std::size_t length = std::size_t{1} << below(random, 4);
  if (bytes.size() < length) return;
  std::uint64_t word = kWords[below(random, std::size(kWords))];
  if (below(random, 4) == 0) word = random();
  if (below(random, 2) == 0) word = __builtin_bswap64(word << (64 - 8 * length));
  std::memcpy(bytes.data() + below(random, bytes.size() - length + 1), &word, length);
}

void truncate(std::string& bytes, Random& random) { bytes.resize(below(random, bytes.size() + 1)); }

void erase_range(std::string& bytes, Random& random) {
  const std::size_t at = below(random, bytes.size() + 1);
  bytes.erase(at, 1 + below(random, 32));
}

void repeat_range(std::string& bytes, Random& random) {
  const std::size_t at = below(random, bytes.size() + 1);
  const std::string range = bytes.substr(at, 1 + below(random, 64));
  std::string repeated;
  for (std::size_t i = 0, times = std::size_t{1} << below(random, 12); i < times; ++i) repeated += range;
  bytes.insert(at, repeated);
}

void insert_random(std::string& bytes, Random& random) {
  std::string fresh(1 + below(random, 64), '\0');
  std::ranges::generate(fresh, [&] { return static_cast<char>(random()); });
  bytes.insert(below(random, bytes.size() + 1), fresh);
}

void insert_control(std::string& bytes, Random& random) {
  constexpr std::string_view kTexts[] = {"\033[2J", "\\u001b]0;x\\u0007", "\xff\xfe", "\n", "%s%n", "../../etc"};
  bytes.insert(below(random, bytes.size() + 1), kTexts[below(random, std::size(kTexts))]);
}

/// Inserts brackets at the place of a value: up to 512, and up to a million one time out of 32. Such inputs take a
/// millisecond each.
void nest(std::string& bytes, Random& random) {
  std::size_t at = bytes.find_first_of(":[{", below(random, bytes.size() + 1));
  at = at == bytes.npos ? bytes.size() : at + 1;
  const bool deep = below(random, 32) == 0;
  const std::size_t depth = std::size_t{1} << (deep ? 14 + below(random, 7) : below(random, 10));
  const bool object = below(random, 2) == 0, closed = below(random, 2) == 0;
  std::string text = object ? "{\"a\":" : "[";
  text.reserve(depth * (text.size() + 1) + 1);
  for (std::size_t levels = 1; levels < depth; levels *= 2) text.append(text);
  text += '1';
  if (closed) text.append(depth, object ? '}' : ']');
  bytes.insert(at, text);
}

void replace_number(std::string& bytes, Random& random) {
  const std::size_t at = bytes.find_first_of("0123456789", below(random, bytes.size() + 1));
  if (at == bytes.npos) return;
  std::size_t end = bytes.find_first_not_of("0123456789.", at);
  end = std::min(end, bytes.size());
  bytes.replace(at, end - at, kValues[below(random, std::size(kValues))]);
}

/// Replaces the value of a field of a text.
void replace_value(std::string& bytes, Random& random) {
  const std::size_t at = bytes.find(':', below(random, bytes.size() + 1));
  if (at == bytes.npos) return;
  const std::size_t end = std::min(bytes.find_first_of(",}]", at + 1), bytes.size());
  bytes.replace(at + 1, end - at - 1, kValues[below(random, std::size(kValues))]);
}

/// Copies one field of a text to another place, so that it occurs twice.
void repeat_field(std::string& bytes, Random& random) {
  const std::size_t at = bytes.find(',', below(random, bytes.size() + 1));
  if (at == bytes.npos) return;
  const std::size_t end = std::min(bytes.find_first_of(",}]", at + 1), bytes.size());
  const std::string field = bytes.substr(at, end - at);
  const std::size_t to = bytes.find(',', below(random, bytes.size() + 1));
  bytes.insert(to == bytes.npos ? at : to, field);
}

constexpr void (*kMutations[])(std::string&, Random&) = {
    flip_bits, set_word,       truncate,     erase_range, repeat_range, insert_random, insert_control,
    nest,      replace_number, repeat_field, set_word,    flip_bits,    replace_value};

/// Memory that ends at a page which cannot be read.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t most) : bytes_((most / kPage + 1) * kPage) {
    void* const memory = ::mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || ::mprotect(static_cast<char*>(memory) + bytes_, kPage, PROT_NONE) != 0)
      throw std::bad_alloc();
    memory_ = static_cast<char*>(memory);
  }
  ~GuardedBytes() { ::munmap(memory_, bytes_ + kPage); }
  GuardedBytes(const GuardedBytes&) = delete;
  GuardedBytes& operator=(const GuardedBytes&) = delete;
  std::string_view put(std::string_view text) {
    char* const to = memory_ + bytes_ - text.size();
    std::memcpy(to, text.data(), text.size());
    return {to, text.size()};
  }

 private:
  static constexpr std::size_t kPage = 4096;
  std::size_t bytes_;
  char* memory_;
};

constexpr std::size_t kLongestInput = std::size_t{16} << 20;

// The input that is being parsed, for the handler of signals.
char place[256];

void report_signal(int signal) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, place, std::strlen(place));
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// Installs the handler with a stack of its own, because the parser may have used up the usual one. Sanitizers keep
/// their own handlers, which report more.
void handle_signals() {
  static std::array<char, 1 << 16> stack;
  const stack_t own{.ss_sp = stack.data(), .ss_flags = 0, .ss_size = stack.size()};
  ::sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_handler = report_signal;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGABRT, SIGALRM, SIGFPE, SIGILL, SIGTERM}) ::sigaction(signal, &action, nullptr);
  for (const int signal : {SIGSEGV, SIGBUS}) {
    struct sigaction old {};
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_DFL) ::sigaction(signal, &action, nullptr);
  }
}

/// Returns a text without the parts that follow from the input: numbers, and texts in quotes.
std::string without_values(std::string_view text) {
  std::string kept;
  bool quoted = false, last_digit = false;
  for (const char c : text) {
    if (c == '"') quoted = !quoted;
    const bool digit = (c >= '0' && c <= '9') || c == '.' || c == '-';
    if (!quoted && !(digit && last_digit) && c >= ' ' && c <= '~') kept += digit ? '0' : c;
    last_digit = digit;
  }
  return kept.substr(0, 160);
}

}  // namespace

std::string mutated(const MutationTarget& target, std::uint64_t seed, std::uint64_t number) {
  if (number < target.seeds.size()) return target.seeds[number];
  Random random(seed, number);
  std::string bytes = target.seeds[below(random, target.seeds.size())];
  if (below(random, 8) == 0) {  // a splice of two seeds
    const std::string& other = target.seeds[below(random, target.seeds.size())];
    bytes = bytes.substr(0, below(random, bytes.size() + 1)) + other.substr(below(random, other.size() + 1));
  }
  // A single change often leaves the input valid in part, so that more of the parser is reached.
  for (std::size_t i = 0, times = below(random, 2) == 0 ? 1 : 1 + below(random, 4); i < times; ++i)
    kMutations[below(random, std::size(kMutations))](bytes, random);
  if (bytes.size() > kLongestInput) bytes.resize(kLongestInput);
  return bytes;
}

MutationOptions share_of(const MutationTarget& target, const std::vector<MutationTarget>& all,
                         const MutationOptions& options) {
  std::uint64_t shares = 0;
  for (const MutationTarget& each : all) shares += each.share;
  const auto number = [&](std::uint64_t of_all) { return of_all * target.share / shares; };
  const std::uint64_t first = number(options.first);
  return {.count = number(options.first + options.count) - first, .seed = options.seed, .first = first};
}

MutationReport run_mutations(const MutationTarget& target, const MutationOptions& options) {
  using Clock = std::chrono::steady_clock;
  handle_signals();
  // Long inputs get memory that the heap keeps, because new pages would take longer than the parser.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  GuardedBytes memory(kLongestInput);
  MutationReport report;
  const auto started = Clock::now();
  std::set<std::string> paths;
  const auto fault = [&](std::uint64_t number, const std::string& why) {
    if (report.faults.size() < kMostFaults)
      report.faults.push_back(
          fmt::format("--target {} --seed {} --first {} --count 1: {}", target.name, options.seed, number, why));
  };
  for (std::uint64_t number = options.first; number < options.first + options.count; ++number) {
    const std::string bytes = mutated(target, options.seed, number);
    *fmt::format_to_n(place, sizeof place - 1, "a signal in --target {} --seed {} --first {} --count 1\n", target.name,
                      options.seed, number)
         .out = '\0';
    const std::string_view input = memory.put(bytes);
    MutationOutcome outcome;
    const std::ptrdiff_t before = most_in_use = bytes_in_use.load();
    if ((number - options.first) % kInputsOfAlarm == 0) ::alarm(static_cast<unsigned>(2 * kMostSeconds));
    const auto begun = Clock::now();
    try {
      outcome = target.parse(input);
    } catch (const Error& error) {
      outcome = MutationOutcome::refused(error.what());
    } catch (const std::exception& error) {
      fault(number, fmt::format("threw {}", error.what()));
    } catch (...) {
      fault(number, "threw no std::exception");
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    const auto allocated = static_cast<std::size_t>(most_in_use.load() - before);
    if (allocated > kMostBytesOfInput) fault(number, fmt::format("allocated {} bytes", allocated));
    if (seconds > kMostSeconds) fault(number, fmt::format("took {:.1f} s", seconds));
    report.most_bytes = std::max(report.most_bytes, allocated);
    report.most_seconds = std::max(report.most_seconds, seconds);
    ++(outcome.kind == MutationOutcome::Kind::accepted  ? report.accepted
       : outcome.kind == MutationOutcome::Kind::refused ? report.refused
                                                        : report.dropped);
    paths.insert(static_cast<char>('0' + static_cast<int>(outcome.kind)) + without_values(outcome.path));
  }
  ::alarm(0);
  report.paths = paths.size();
  report.seconds = std::chrono::duration<double>(Clock::now() - started).count();
  return report;
}

std::string report_text(const MutationTarget& target, const MutationReport& report) {
  const std::uint64_t inputs = report.accepted + report.refused + report.dropped;
  std::string text = fmt::format(
      "{}: {} inputs: {} accepted, {} refused, {} dropped; {} different outcomes; at most {:.1f} MiB and {:.3f} s; "
      "{:.1f} us on average",
      target.name, inputs, report.accepted, report.refused, report.dropped, report.paths,
      static_cast<double>(report.most_bytes) / (1 << 20), report.most_seconds,
      1e6 * report.seconds / static_cast<double>(std::max<std::uint64_t>(inputs, 1)));
  for (const std::string& fault : report.faults) text += "\n  fault: " + fault;
  return text;
}

}  // namespace collectives::testing
