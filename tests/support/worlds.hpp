// Worlds of conformance suites, which are layouts of ranks on hosts, and inputs whose sums are exact in any order.
#pragma once

#include <algorithm>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "collectives/types.hpp"
#include "support/system.hpp"

namespace collectives::testing {

/// A world: ranks on one host or on several.
struct World {
  std::string name;
  std::vector<int> hosts;         ///< hosts[r]: the host of rank r
  std::vector<int> domains = {};  ///< domains[r]: the domain (socket or cache) of rank r on one host; empty: one domain
  int ranks() const { return static_cast<int>(hosts.size()); }
  friend void PrintTo(const World& world, std::ostream* out) { *out << world.name; }
};

inline std::vector<World> worlds() {
  std::vector<World> all{{"1", {0}}, {"2", {0, 0}}, {"3", {0, 0, 0}}, {"3hosts_unequal", {0, 0, 1, 2, 2, 2}}};
#if defined(__SANITIZE_THREAD__)  // sanitizers would take minutes for more worlds
  all.push_back({"2hosts_of_2", {0, 0, 1, 1}});
#else
  all.push_back({"2hosts_interleaved", {0, 1, 0, 1, 1}});
#if !defined(__SANITIZE_ADDRESS__)
  all.insert(all.end(), {{"4", {0, 0, 0, 0}},
                         {"7", {0, 0, 0, 0, 0, 0, 0}},
                         {"2hosts_of_1", {0, 1}},
                         {"2hosts_of_2", {0, 0, 1, 1}},
                         {"5hosts_of_1", {0, 1, 2, 3, 4}}});
#endif
#endif
  return all;
}

/// Returns worlds of one host with several domains: sockets or last-level caches.
inline std::vector<World> worlds_of_domains() {
  return {{"2domains_of_2", {0, 0, 0, 0}, {0, 0, 1, 1}},
          {"3domains_of_2_interleaved", {0, 0, 0, 0, 0, 0}, {0, 1, 2, 2, 1, 0}},
          {"2domains_of_3", {0, 0, 0, 0, 0, 0}, {0, 0, 1, 0, 1, 1}}};
}

/// Returns an element of a rank's input: a small integer that depends on the rank and the position. Positions that
/// differ by kPeriod have equal elements.
template <class T>
T value_of(Rank rank, std::size_t index) {
  return static_cast<T>(static_cast<float>(1 + (static_cast<std::size_t>(rank) * 3 + index * 5) % 7));
}
constexpr std::size_t kPeriod = 7;

/// Returns `count` elements, of which element(i) computes the first kPeriod. The others repeat them.
template <class T, class Element>
std::vector<T> repeated(std::size_t count, Element&& element) {
  std::vector<T> values(count);
  std::size_t filled = std::min(count, kPeriod);
  for (std::size_t i = 0; i < filled; ++i) values[i] = element(i);
  // Copies are many times faster than an element at a time, mostly under sanitizers.
  while (filled < count) {
    const std::size_t more = std::min(filled, count - filled);
    std::copy_n(values.begin(), more, values.begin() + static_cast<std::ptrdiff_t>(filled));
    filled += more;
  }
  return values;
}
template <class T>
std::vector<T> input_of(Rank rank, std::size_t count) {
  return repeated<T>(count, [&](std::size_t i) { return value_of<T>(rank, i); });
}
template <class T>
std::vector<T> sum_of(int ranks, std::size_t count) {
  return repeated<T>(count, [&](std::size_t i) {
    float sum = 0;
    for (Rank r = 0; r < ranks; ++r) sum += static_cast<float>(value_of<T>(r, i));
    return static_cast<T>(sum);
  });
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Returns counts that p does not divide, and counts so long that the vector is communicated in several rounds, one
/// segment each. Some counts leave one element for the last round, so that only the first rank owns an element of it.
inline std::vector<std::size_t> awkward_counts(int p) {
  const auto n = static_cast<std::size_t>(p);
  std::vector<std::size_t> counts{0, 1, n - 1, n, n + 1, 3 * n + 2, 611, n * (65'536 / n) + 1};
  if (!kSanitized) counts.insert(counts.end(), {40'009, 2 * n * (65'536 / n) + 1});  // sanitizers make loops slow
  return counts;
}

/// Returns an input whose sums over ranks depend on the order of addition.
inline std::vector<float> uneven(Rank rank, std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(rank + 1) / static_cast<float>(3 + i % 1009);
  return values;
}

}  // namespace collectives::testing
