#include "mpi_drop_in/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"
#include "core/tuning.hpp"
#include "device/loader.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {
namespace {

/// All there are. Never destroyed: a program may leave without MPI_Finalize.
struct All {
  std::mutex mutex;
  std::unordered_map<const CommState*, std::shared_ptr<CommState>> states;
};
All& all() {
  static All& them = *new All;
  return them;
}

/// Ranks have come when they build, so who does not answer for that long does not answer. Calls wait as MPI's do.
constexpr std::chrono::minutes kBuilding(1);

int keyval = MPI_KEYVAL_INVALID;
std::atomic<int> alive = 0;
/// Counts the communicators that are gone: handles are used again.
std::atomic<std::uint64_t> gone = 0;

/// MPI calls it when a communicator is freed or disconnected.
int forget(MPI_Comm, int, void* value, void*) noexcept {
  All& them = all();
  std::shared_ptr<CommState> last;  // goes when the mutex is free; operations that are pending keep it longer
  const std::lock_guard lock(them.mutex);
  if (const auto found = them.states.find(static_cast<const CommState*>(value)); found != them.states.end()) {
    last = std::move(found->second);
    last->freed();
    them.states.erase(found);
  }
  gone.fetch_add(1, std::memory_order_release);
  return MPI_SUCCESS;
}

/// Waits for what `begin(&request)` begins, and gives up the core meanwhile: with more ranks than cores, an MPI that
/// spins takes it from the rank that is waited for. True when MPI is content.
template <class Begin>
bool finish(Begin&& begin) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (begin(&request) != MPI_SUCCESS) return false;
  int done = 0;
  for (Backoff backoff(kLongestSleepBetweenCalls);; backoff.wait()) {
    if (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
    if (done != 0) return true;
  }
}

/// The ranks of an MPI communicator exchange over it, in the order of its other collectives. A rank that fails between
/// two exchanges says so in the next one, where all the others fail with it: so MPI has the same collectives to perform
/// on all of them. Deadlines do not count here: every rank comes to the next exchange or ends, which ends its program.
class OverMpi final : public Bootstrap {
 public:
  OverMpi(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {}
  std::string_view name() const noexcept override { return "mpi"; }
  Rank rank() const noexcept override { return rank_; }
  int size() const noexcept override { return size_; }
  std::vector<std::string> all_gather(std::string_view mine, Deadline) override {
    const int bytes = static_cast<int>(mine.size());
    const std::vector<int> counts = counts_of_all(bytes);
    std::vector<int> offsets(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    std::string contributions(static_cast<std::size_t>(offsets.back() + counts.back()), '\0');
    check(finish([&](MPI_Request* request) {
      return PMPI_Iallgatherv(mine.data(), bytes, MPI_BYTE, contributions.data(), counts.data(), offsets.data(),
                              MPI_BYTE, comm_, request);
    }));
    std::vector<std::string> result;
    for (std::size_t r = 0; r < counts.size(); ++r)
      result.push_back(contributions.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
    return result;
  }
  /// The last exchange, of a rank that has all it needs. Throws like the others.
  void succeed() { counts_of_all(0); }
  /// The last exchange, of a rank that has failed alone.
  void fail() noexcept try {
    if (!over_) counts_of_all(kFailed);
  } catch (const std::exception&) {  // as it must
  }

 private:
  static constexpr int kFailed = -1;

  std::vector<int> counts_of_all(int mine) {
    std::vector<int> counts(static_cast<std::size_t>(size_));
    check(finish([&](MPI_Request* request) {
      return PMPI_Iallgather(&mine, 1, MPI_INT, counts.data(), 1, MPI_INT, comm_, request);
    }));
    const auto failed = std::ranges::find(counts, kFailed);
    if (failed == counts.end()) return counts;
    over_ = true;
    throw Error(Errc::bootstrap, fmt::format("rank {} has failed", failed - counts.begin()));
  }
  void check(bool content) {
    over_ = !content;
    if (over_) throw Error(Errc::bootstrap, "MPI failed while the ranks met");
  }
  MPI_Comm comm_;
  int rank_, size_;
  bool over_ = false;  ///< all ranks know of a failure, or MPI has failed
};

/// Whether all ranks of `comm` belong to this MPI_COMM_WORLD, whose ranks have agreed on the settings. Alike on all
/// ranks: where they do not, everyone has a stranger.
bool of_this_world(MPI_Comm comm, int size) {
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> ranks(static_cast<std::size_t>(size)), there(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  PMPI_Group_translate_ranks(group, size, ranks.data(), world, there.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return std::ranges::count(there, MPI_UNDEFINED) == 0;
}

/// On one host the built-in numbers, unless the user has said otherwise: measuring would take longer than a short
/// program can win back. Between hosts nothing, so that the wire is measured.
std::optional<Tuning> tuning_of(OverMpi& ranks) {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  PMPI_Get_processor_name(name, &length);
  const std::vector<std::string> names = ranks.all_gather(name, Deadline::never());
  const bool one_host = std::ranges::count(names, names.front()) == ranks.size();
  try {
    if (one_host && !environment().tuning) return built_in_tuning();
  } catch (const std::exception&) {  // a malformed variable of this rank, which all ranks hear of when they meet
  }
  return std::nullopt;
}

/// The least of what the ranks say, none below 0; 0 where MPI fails.
int least_of(MPI_Comm comm, int mine) {
  int least = 0;
  const bool content =
      finish([&](MPI_Request* request) { return PMPI_Iallreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm, request); });
  return content ? least : 0;
}

}  // namespace

CommState::CommState(MPI_Comm comm) : comm_(comm) {
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  PMPI_Comm_rank(comm, &rank_);
  PMPI_Comm_size(comm, &size_);
  if (inter != 0)
    reason_ = Reason::inter;
  else if (size_ == 1)
    reason_ = Reason::alone;
  else if (!of_this_world(comm, size_))
    reason_ = Reason::foreign;
}

CommState::~CommState() { drop(); }

void CommState::drop() noexcept {
  if (!communicator_) return;
  communicator_.reset();
  reason_ = Reason::unavailable;
  alive.fetch_sub(1);
}

void CommState::lock() noexcept {
  for (Backoff backoff; !try_lock();) backoff.wait();
}

Reason CommState::reason_to_forward(bool blocking, std::size_t bytes) {
  if (reason_ != Reason::young || !blocking) return reason_;
  if (calls_ >= settings().after) build();
  calls_ += 1 + bytes / kBytesPerCall;
  return reason_;
}

void CommState::build() {
  reason_ = Reason::unavailable;
  enum { full, on_gpus, able };
  const int mine = alive.fetch_add(1) >= kMaxCommunicators ? full : cuda_driver_is_loaded() ? on_gpus : able;
  const int least = least_of(comm_, mine);
  if (least == on_gpus) reason_ = Reason::gpu;
  if (least == able) {
    OverMpi ranks(comm_, rank_, size_);
    try {
      communicator_.emplace(ranks, CommunicatorOptions{.timeout = kBuilding,
                                                       .stall_report = std::chrono::nanoseconds::max(),
                                                       .progress_thread = false,
                                                       .tuning = tuning_of(ranks),
                                                       .device_buffers = false});
      ranks.succeed();
      reason_ = Reason::none;
      return;
    } catch (const std::exception& error) {
      communicator_.reset();
      ranks.fail();
      log_warning(rank_, "MPI calls of a communicator of {} ranks are not taken over: {}", size_, error.what());
    }
  }
  alive.fetch_sub(1);
}

void init_communicators() {
  // Without a copy function: a duplicate is a communicator of its own.
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &keyval, nullptr);
}

CommState* find(MPI_Comm comm) {
  struct Last {
    MPI_Comm comm = MPI_COMM_NULL;
    std::uint64_t gone = 0;
    CommState* state = nullptr;
  };
  thread_local Last last;
  const std::uint64_t now = gone.load(std::memory_order_acquire);
  if (last.comm == comm && last.gone == now && last.state != nullptr) return last.state;
  void* value = nullptr;
  int there = 0;
  if (PMPI_Comm_get_attr(comm, keyval, &value, &there) != MPI_SUCCESS) return nullptr;
  if (there == 0) {
    const auto made = std::make_shared<CommState>(comm);
    {
      const std::lock_guard lock(all().mutex);
      all().states.emplace(made.get(), made);
    }
    value = made.get();
    PMPI_Comm_set_attr(comm, keyval, value);
  }
  last = {comm, now, static_cast<CommState*>(value)};
  return last.state;
}

void drop_all() noexcept {
  const std::lock_guard lock(all().mutex);
  for (auto& [address, state] : all().states) state->drop();
  if (keyval != MPI_KEYVAL_INVALID) PMPI_Comm_free_keyval(&keyval);
}

}  // namespace collectives::drop_in
