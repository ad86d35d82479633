// Implementation of the trials of pairs of calls, and of the judgement of their errors.
#include "fault/call_pairs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "support/hosts.hpp"
#include "support/pattern.hpp"
#include "support/ranks.hpp"

namespace collectives::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostBarriers = 3;  // barriers of a rank that gets no error

/// Result of a trial on one rank.
struct Outcome {
  std::optional<Error> error;
  std::string refusal;  // error of its own call, which was refused; empty: none
  int barriers = 0;     // barriers that succeeded after its call
  double seconds = 0;
};

/// A pair with the calls that all ranks make before it, and with the ranks that are late.
struct Trial {
  CallPair pair;
  int before;  // barriers before the pair
  int late;    // 1: the ranks of the first call are late, 2: those of the second one, 0: none
};

bool makes_first(const Cell& cell, Rank rank) { return (cell.first >> rank & 1u) != 0; }

Outcome perform(const Cell& cell, const Trial& trial, Communicator comm) {
  Outcome outcome;
  const bool first = makes_first(cell, comm.rank());
  CallMaker maker(std::move(comm), cell.interface);
  Clock::time_point began;
  try {
    for (int i = 0; i < trial.before; ++i) maker.barrier();
    if (trial.late == (first ? 1 : 2)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    began = Clock::now();
    try {
      maker.make(different_calls()[first ? trial.pair.first : trial.pair.second]);
    } catch (const Error& error) {
      if (error.code() != Errc::invalid_argument && error.code() != Errc::unsupported) throw;
      outcome.refusal = error.what();
      began = Clock::now();
    }
    for (; outcome.barriers < kMostBarriers; ++outcome.barriers) maker.barrier();
  } catch (const Error& error) {
    outcome.error = error;
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - began).count();
  return outcome;
}

/// Returns a regular expression of the ranks that make the first call of a pair, or the second one, as error texts list
/// them: "rank 0", "ranks 0-1, 3".
std::string ranks_of(const Cell& cell, bool first) {
  std::vector<std::string> parts;
  std::vector<Rank> run;
  const auto close = [&] {
    if (run.size() == 1) parts.push_back(fmt::format("{}", run[0]));
    if (run.size() > 1) parts.push_back(fmt::format("{}-{}", run.front(), run.back()));
    run.clear();
  };
  int ranks = 0;
  for (Rank rank = 0; rank <= static_cast<Rank>(cell.hosts.size()); ++rank) {
    const bool member = rank < static_cast<Rank>(cell.hosts.size()) && makes_first(cell, rank) == first;
    ranks += member ? 1 : 0;
    member ? run.push_back(rank) : close();
  }
  return fmt::format("rank{} {}", ranks > 1 ? "s" : "", fmt::join(parts, ", "));
}

/// Returns what is wrong with the error of one rank; empty: nothing.
std::string fault_of(const Cell& cell, const Trial& trial, const Outcome& outcome, bool first_refused,
                     bool second_refused) {
  if (!outcome.error) return "unnoticed";
  if (outcome.error->code() != Errc::mismatch) return "is no mismatch";
  if (outcome.barriers > 0) return "late";
  const std::string text = outcome.error->what();
  const DifferentCall& first = different_calls()[trial.pair.first];
  const DifferentCall& second = different_calls()[trial.pair.second];
  const auto has = [&](const std::string& pattern) { return !Pattern(pattern).all_in(text).empty(); };
  if (!has(fmt::format("({}|{}) #{}[^0-9]", first.verb(), second.verb(), trial.before + 1)))
    return "names another call";
  const auto named = [&](bool of_first, bool refused) {
    return has(fmt::format("{} {}[ :]", ranks_of(cell, of_first), refused ? "refused" : "passed"));
  };
  const bool any_refused = first_refused || second_refused;
  const bool names_first = named(true, first_refused), names_second = named(false, second_refused);
  if (any_refused ? !(names_first && first_refused) && !(names_second && second_refused)
                  : !names_first || !names_second)
    return "does not name the ranks";
  return "";
}

/// Appends the faults of one trial to `tried`.
void judge(const Cell& cell, const Trial& trial, const std::vector<Outcome>& outcomes, Tried& tried) {
  ++tried.pairs;
  std::vector<std::string> refusals[2];
  for (std::size_t r = 0; r < outcomes.size(); ++r)
    if (!outcomes[r].refusal.empty())
      refusals[makes_first(cell, static_cast<Rank>(r)) ? 0 : 1].push_back(outcomes[r].refusal);
  const bool refused[2] = {!refusals[0].empty(), !refusals[1].empty()};
  if (refused[0] && refused[1] && refusals[0][0] == refusals[1][0]) {
    ++tried.refused_alike;
    return;
  }
  std::vector<std::string> wrong;
  for (const Outcome& outcome : outcomes) {
    tried.seconds.push_back(outcome.seconds);
    const std::string fault = fault_of(cell, trial, outcome, refused[0], refused[1]);
    if (!fault.empty() && std::ranges::find(wrong, fault) == wrong.end()) wrong.push_back(fault);
    if (outcome.error && outcomes[0].error && std::string(outcome.error->what()) != outcomes[0].error->what() &&
        std::ranges::find(wrong, "other words") == wrong.end())
      wrong.push_back("other words");
  }
  if (wrong.empty()) return;
  std::string text = fmt::format("{}: {} | {}, late {}: {}", cell.text(), different_calls()[trial.pair.first].title,
                                 different_calls()[trial.pair.second].title, trial.late, fmt::join(wrong, ", "));
  for (std::size_t r = 0; r < outcomes.size(); ++r)
    text += fmt::format("\n  rank {} after {} barriers, {:.3f} s: {}{}", r, outcomes[r].barriers, outcomes[r].seconds,
                        outcomes[r].error ? outcomes[r].error->what() : "no error",
                        outcomes[r].refusal.empty() ? "" : "; refused: " + outcomes[r].refusal);
  tried.faults.push_back(std::move(text));
}

/// Calls work(Bootstrap&) on all ranks of the cell.
template <class Work>
void run_cell(const Cell& cell, Work&& work) {
  const auto mailbox = std::make_shared<WireMailbox>();
  run_ranks(static_cast<int>(cell.hosts.size()), [&](Bootstrap& threads) {
    const std::string host = fmt::format("host {}", cell.hosts[static_cast<std::size_t>(threads.rank())]);
    if (cell.wire == "queue") {
      HostBootstrap bootstrap(threads, host, "", mailbox, std::make_shared<std::atomic<std::size_t>>(0));
      work(bootstrap);
    } else {
      WiredHost bootstrap(threads, host);
      work(bootstrap);
    }
  });
}

}  // namespace

std::vector<CallPair> all_call_pairs() {
  std::vector<CallPair> pairs;
  const std::size_t calls = different_calls().size();
  for (std::size_t first = 0; first < calls; ++first)
    for (std::size_t second = 0; second < calls; ++second)
      if (first != second) pairs.push_back({first, second});
  return pairs;
}

std::string Cell::text() const {
  std::string ranks;
  for (Rank rank = 0; rank < static_cast<Rank>(hosts.size()); ++rank) ranks += makes_first(*this, rank) ? 'A' : 'B';
  return fmt::format("hosts {}, ranks {}, {}, {}, wire {}", fmt::join(hosts, ","), ranks, backend, to_string(interface),
                     wire.empty() ? "auto" : wire);
}

std::vector<Cell> all_cells(const std::string& wire) {
  const std::vector<std::vector<int>> worlds{{0, 0},    {0, 1},       {0, 0, 0},    {0, 1, 1},   {0, 0, 1},
                                             {0, 1, 2}, {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 1}};
  std::vector<Cell> cells;
  for (const auto& hosts : worlds)
    // Rank 0 makes the first call. The pairs in the other order cover the other divisions.
    for (unsigned first = 1; first + 1 < 1u << hosts.size(); first += 2)
      for (const char* backend : {"auto", "hierarchical", "ring", "reduce_to_one"})
        for (const Interface interface : kInterfaces) cells.push_back({hosts, first, backend, interface, wire});
  return cells;
}

void Tried::add(Tried other) {
  pairs += other.pairs;
  refused_alike += other.refused_alike;
  std::ranges::move(other.faults, std::back_inserter(faults));
  std::ranges::move(other.seconds, std::back_inserter(seconds));
}

Tried try_pairs(const Cell& cell, const std::vector<CallPair>& pairs, std::chrono::nanoseconds timeout) {
  std::vector<Trial> trials;
  for (const CallPair& pair : pairs) {
    const int mixed = static_cast<int>(pair.first * 7 + pair.second * 5);
    trials.push_back({pair, 1 + mixed % 3, mixed / 3 % 3});
  }
  std::vector<std::vector<Outcome>> outcomes(pairs.size(), std::vector<Outcome>(cell.hosts.size()));
  CommunicatorOptions options;
  options.tuning = Tuning{};  // nothing is measured
  options.timeout = std::chrono::minutes(1);
  options.wire = cell.wire == "queue" ? "" : cell.wire;
  CommunicatorOptions of_part;
  of_part.backend = cell.backend;
  of_part.timeout = timeout;
  run_cell(cell, [&](Bootstrap& bootstrap) {
    Communicator world(bootstrap, options);
    for (std::size_t i = 0; i < trials.size(); ++i)
      outcomes[i][static_cast<std::size_t>(world.rank())] = perform(cell, trials[i], *world.split(0, 0, of_part));
  });
  Tried tried;
  for (std::size_t i = 0; i < trials.size(); ++i) judge(cell, trials[i], outcomes[i], tried);
  return tried;
}

Tried try_drawn_cells(std::uint64_t seed, std::size_t cells, std::size_t pairs) {
  std::mt19937_64 random(seed);
  const std::vector<Cell> among = all_cells("");
  const std::vector<CallPair> all = all_call_pairs();
  Tried tried;
  for (std::size_t i = 0; i < cells; ++i) {
    const Cell& cell = among[random() % among.size()];
    std::vector<CallPair> drawn;
    for (std::size_t n = 0; n < pairs; ++n) drawn.push_back(all[random() % all.size()]);
    tried.add(try_pairs(cell, drawn));
  }
  return tried;
}

}  // namespace collectives::testing
