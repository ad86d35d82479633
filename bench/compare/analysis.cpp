// Implementation of the analysis of a comparison of libraries. A contender is a timed library: ours or a peer. A cell
// is a collective, a size and a number of ranks. A round times each contender once in each cell. This file reads the
// times, and computes for each cell the ratio of the best peer's time to ours, with a confidence interval.
#include "analysis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>

#include "base/json.hpp"
#include "base/json_record.hpp"
#include "collectives_bench/statistics.hpp"

namespace collectives::compare {

namespace {

Role role_from(const std::string& name) {
  if (name == "ours") return Role::ours;
  if (name == "peer") return Role::peer;
  if (name == "best-setting") return Role::best_setting;
  if (name == "bound") return Role::bound;
  throw std::runtime_error("role \"" + name + "\": known are ours, peer, best-setting, bound");
}

double median_of(const Rounds& rounds) {
  std::vector<double> times;
  for (const auto& [round, time] : rounds) times.push_back(time);
  return bench::median(times);
}

/// Adds the note `what` about `subject` to `notes`, unless `notes` has a note about it.
void note_once(std::vector<std::string>& notes, const std::string& subject, const std::string& what) {
  const std::string start = subject + ": ";
  if (std::ranges::none_of(notes, [&](const std::string& note) { return note.starts_with(start); })) {
    notes.push_back(start + what);
  }
}

void read_sample(const JsonRecord& line, Samples& samples) {
  constexpr int kMost = 1 << 30;
  const std::string contender = line.text("contender");
  if (!line.has("collective")) {  // without a collective, the line is about the contender
    samples.notes.push_back(contender + ": " + line.text("left_out"));
    return;
  }
  const Cell cell{line.integer("ranks", 0, kMost), line.boolean("back_to_back"), line.text("collective"),
                  line.boolean("in_place"), line.integer<std::size_t>("bytes", 0, std::size_t{1} << 60)};
  const std::string subject = contender + ", " + title_of(cell);
  if (line.has("left_out")) {
    note_once(samples.notes, subject, line.text("left_out"));
    return;
  }
  const Role role = role_from(line.text("role"));
  const auto wrong = line.integer<std::size_t>("wrong", 0, std::size_t{1} << 60);
  if (role == Role::ours) samples.wrong_of_ours += wrong;
  if (wrong != 0) {
    note_once(samples.notes, subject, fmt::format("wrong result for {} bytes", cell.bytes));
    return;
  }
  Series& series = samples.cells[cell][contender];
  series.role = role;
  series.rounds[line.integer("round", 0, kMost)] = line.number("microseconds", 0);
}

/// Returns the median of the peer's time divided by ours over the rounds `drawn`. Returns 0 if no round has both times.
double ratio_in(const Rounds& ours, const Rounds& peer, const std::vector<int>& drawn) {
  std::vector<double> ratios;
  for (const int round : drawn) {
    const auto mine = ours.find(round), theirs = peer.find(round);
    if (mine != ours.end() && theirs != peer.end()) ratios.push_back(theirs->second / mine->second);
  }
  return bench::median(ratios);
}

}  // namespace

std::string title_of(const Cell& cell) {
  return fmt::format("{} ranks, {}, {}", cell.ranks, cell.collective,
                     cell.back_to_back ? "back to back"
                     : cell.in_place   ? "in place"
                                       : "out of place");
}

Samples read_samples(std::istream& lines) {
  Samples samples;
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    try {
      std::string why;
      const nlohmann::json sample = parse_json(line, {}, &why);
      if (sample.is_discarded()) throw std::runtime_error(why);
      read_sample(JsonRecord(sample, "its object"), samples);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("line {} is no sample: {}", number, error.what()));
    }
  }
  return samples;
}

std::optional<Ratio> best_peer_over(const Rounds& ours, const std::map<std::string, Rounds>& peers) {
  std::vector<int> rounds;
  for (const auto& [round, time] : ours) rounds.push_back(round);

  // Returns the smallest ratio among the peers, and the name of that peer.
  const auto best_in = [&](const std::vector<int>& drawn) {
    std::pair<double, const std::string*> best{0, nullptr};
    for (const auto& [name, times] : peers) {
      const double ratio = ratio_in(ours, times, drawn);
      if (ratio > 0 && (best.second == nullptr || ratio < best.first)) best = {ratio, &name};
    }
    return best;
  };

  const std::string* const peer = best_in(rounds).second;
  if (peer == nullptr) return std::nullopt;
  const auto interval =
      bench::bootstrap_interval(rounds.size(), [&](std::span<const std::size_t> drawn) -> std::optional<double> {
        std::vector<int> chosen;
        for (const std::size_t index : drawn) chosen.push_back(rounds[index]);
        const auto best = best_in(chosen);
        return best.second != nullptr ? std::optional(best.first) : std::nullopt;
      });
  return Ratio{*peer, median_of(peers.at(*peer)), interval->value, interval->low, interval->high};
}

double bar(const Cell& cell) noexcept {
  constexpr std::size_t kFrom = 8 << 10, kTo = 16 << 20;
  return cell.collective == "all_gather" && cell.bytes >= kFrom && cell.bytes <= kTo ? 0.9 : 1;
}

bool Verdict::slower(double least) const noexcept {
  return std::ranges::any_of(std::array{&stock, &any}, [&](const std::optional<Ratio>* ratio) {
    return *ratio && (*ratio)->high < least * bar(cell);
  });
}

namespace {

Verdict judge_cell(const Cell& cell, const Rounds& ours, const std::map<std::string, Series>& contenders) {
  Verdict verdict{cell, median_of(ours), {}, {}, {}};
  std::map<std::string, Rounds> stock, any;
  std::optional<double> bound;
  bool settings = false;
  for (const auto& [name, series] : contenders) {
    if (series.role == Role::peer) stock[name] = series.rounds;
    if (series.role == Role::peer || series.role == Role::best_setting) any[name] = series.rounds;
    settings = settings || series.role == Role::best_setting;
    if (series.role == Role::bound)
      bound = std::min(bound.value_or(median_of(series.rounds)), median_of(series.rounds));
  }
  verdict.stock = best_peer_over(ours, stock);
  if (settings) verdict.any = best_peer_over(ours, any);
  if (bound) verdict.roofline = *bound / verdict.time;
  return verdict;
}

}  // namespace

std::vector<Line> judge(const Samples& samples) {
  std::set<std::string> names;
  for (const auto& [cell, contenders] : samples.cells) {
    for (const auto& [name, series] : contenders) {
      if (series.role == Role::ours) names.insert(name);
    }
  }
  std::vector<Line> result;
  for (auto first = samples.cells.begin(); first != samples.cells.end();) {
    const auto belongs = [&](const Cell& cell) {
      Cell same = cell;
      same.bytes = first->first.bytes;
      return same == first->first;
    };
    const auto last =
        std::find_if_not(first, samples.cells.end(), [&](const auto& each) { return belongs(each.first); });
    for (const std::string& name : names) {
      Line line{name, {}, {}};
      for (auto at = first; at != last; ++at) {
        const auto& [cell, contenders] = *at;
        if (const auto ours = contenders.find(name); ours != contenders.end()) {
          line.verdicts.push_back(judge_cell(cell, ours->second.rounds, contenders));
        } else {
          line.missing.push_back(cell.bytes);
        }
      }
      result.push_back(std::move(line));
    }
    first = last;
  }
  return result;
}

Summary summarize(const Line& line, std::optional<Ratio> Verdict::*ratio) {
  Summary summary;
  std::vector<double> all, large;
  for (const Verdict& verdict : line.verdicts) {
    const std::optional<Ratio>& found = verdict.*ratio;
    if (!found) continue;
    all.push_back(found->value);
    if (verdict.cell.bytes >= kLargeBytes) large.push_back(found->value);
    if (summary.worst == nullptr || found->value < (summary.worst->*ratio)->value) summary.worst = &verdict;
    if (found->high < bar(verdict.cell)) ++summary.slower;
  }
  summary.all = bench::geometric_mean(all);
  summary.large = bench::geometric_mean(large);
  return summary;
}

std::optional<double> worst_roofline(const Line& line, std::size_t bytes) {
  std::optional<double> worst;
  for (const Verdict& verdict : line.verdicts) {
    if (verdict.cell.bytes < bytes || !verdict.roofline) continue;
    worst = std::min(worst.value_or(*verdict.roofline), *verdict.roofline);
  }
  return worst;
}

std::size_t failures(const std::vector<Line>& lines, double least) {
  std::size_t count = 0;
  for (const Line& line : lines) {
    count += line.missing.size();
    count += static_cast<std::size_t>(
        std::ranges::count_if(line.verdicts, [&](const Verdict& verdict) { return verdict.slower(least); }));
  }
  return count;
}

}  // namespace collectives::compare
