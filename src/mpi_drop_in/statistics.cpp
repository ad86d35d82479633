// Statistics of the drop-in, a library that users preload into an MPI program. The drop-in performs some collectives of
// the program in place of MPI, and forwards all others to MPI. This file counts the performed and the forwarded calls,
// and makes a text of the counts.
#include "mpi_drop_in/statistics.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <iterator>

#include "base/text.hpp"

namespace collectives::drop_in {
namespace {

struct Tally {
  std::atomic<std::uint64_t> calls = 0, bytes = 0, nanoseconds = 0;
};
Tally tallies[2][kKinds][kReasons];

std::string text_of(const Tally& tally, std::string_view what) {
  return fmt::format("{} {} ({}, {:.1f} ms)", tally.calls.load(), what, bytes_text(tally.bytes.load()),
                     static_cast<double>(tally.nanoseconds.load()) * 1e-6);
}

}  // namespace

void count(Form form, Kind kind, Reason reason, std::size_t bytes, std::chrono::nanoseconds time) noexcept {
  Tally& tally =
      tallies[static_cast<std::size_t>(form)][static_cast<std::size_t>(kind)][static_cast<std::size_t>(reason)];
  tally.calls.fetch_add(1, std::memory_order_relaxed);
  tally.bytes.fetch_add(bytes, std::memory_order_relaxed);
  tally.nanoseconds.fetch_add(static_cast<std::uint64_t>(time.count()), std::memory_order_relaxed);
}

std::string statistics() {
  std::string text;
  for (std::size_t form = 0; form < 2; ++form)
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const auto& of_kind = tallies[form][kind];
      std::string forwarded;
      for (std::size_t reason = 1; reason < kReasons; ++reason)
        if (of_kind[reason].calls != 0)
          forwarded += (forwarded.empty() ? "" : ", ") + text_of(of_kind[reason], kReasonNames[reason]);
      if (of_kind[0].calls == 0 && forwarded.empty()) continue;
      std::string name(kKindNames[kind]);
      if (form == 1) name = fmt::format("MPI_I{}{}", static_cast<char>(name[4] - 'A' + 'a'), name.substr(5));
      text += fmt::format("collectives: {}: {}{}{}\n", name, text_of(of_kind[0], kReasonNames[0]),
                          forwarded.empty() ? "" : "; forwarded: ", forwarded);
    }
  return text;
}

}  // namespace collectives::drop_in
