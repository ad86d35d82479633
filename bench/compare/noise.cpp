// Implementation of the noise filter, which repeats measurements that were disturbed on a virtual machine. This file
// reads the stolen time from /proc/stat. Stolen time is time in which the hypervisor gave the cores to another guest.
#include "noise.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <string>
#include <thread>

namespace collectives::compare {
namespace {

constexpr auto kPause = std::chrono::milliseconds(20);  // pause between a disturbed measurement and the next attempt

}  // namespace

CoreTicks CoreTicks::now() {
  // Number of fields of the line "cpu" that are added, and the index of the field "steal". Later fields are left out,
  // because earlier fields contain them.
  constexpr int kFields = 8, kStolen = 7;
  CoreTicks ticks;
  std::ifstream file("/proc/stat");
  std::string name;
  file >> name;
  for (int field = 0; field < kFields; ++field) {
    std::uint64_t value = 0;
    if (!(file >> value)) return {};
    ticks.all += value;
    if (field == kStolen) ticks.stolen = value;
  }
  return ticks;
}

double CoreTicks::stolen_since(const CoreTicks& then) const {
  if (all <= then.all || stolen <= then.stolen) return 0;
  return std::min(1.0, static_cast<double>(stolen - then.stolen) / static_cast<double>(all - then.all));
}

bool CoreTicks::disturbed_since(const CoreTicks& then, double most) const {
  return stolen > then.stolen + 1 && stolen_since(then) > most;
}

double NoiseFilter::wait_until_near() {
  for (;;) {
    const Clock::time_point start = Clock::now();
    const double barrier_ns = sync_.distance();
    if (limits_.barrier_ns == 0 || barrier_ns <= limits_.barrier_ns) return barrier_ns;
    std::this_thread::sleep_for(kPause);
    if (!has_patience_left_after(start)) return barrier_ns;
  }
}

NoiseFilter::Observed NoiseFilter::measure_quietly(const std::function<void()>& measure) {
  for (;;) {
    Observed found{.barrier_ns = wait_until_near()};
    const Clock::time_point start = Clock::now();
    const CoreTicks before = ticks_();
    measure();
    const CoreTicks after = ticks_();
    const auto of_rank_0 = [&](auto word) { return sync_.exchange(std::bit_cast<std::uint64_t>(word)).front(); };
    found.stolen = std::bit_cast<double>(of_rank_0(after.stolen_since(before)));
    const bool disturbed = of_rank_0(std::uint64_t{after.disturbed_since(before, limits_.stolen)}) != 0;
    found.barrier_ns = std::max(found.barrier_ns, sync_.distance());
    const bool near = limits_.barrier_ns == 0 || found.barrier_ns <= limits_.barrier_ns;
    if (near && !disturbed) return found;
    std::this_thread::sleep_for(kPause);
    if (!has_patience_left_after(start)) return found;
  }
}

/// Adds the time since `since` to the time that disturbances have cost. Returns whether the sum is below its limit. The
/// clock of rank 0 decides for all ranks.
bool NoiseFilter::has_patience_left_after(Clock::time_point since) {
  const auto lost = std::chrono::nanoseconds(Clock::now() - since).count();
  lost_ns_ += sync_.exchange(static_cast<std::uint64_t>(lost)).front();
  return std::chrono::nanoseconds(lost_ns_) <= limits_.patience;
}

}  // namespace collectives::compare
