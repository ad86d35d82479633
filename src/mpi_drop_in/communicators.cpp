// Functions that find, build and end the library's communicator for an MPI communicator. They are part of the drop-in,
// a library that users preload into an MPI program. The drop-in performs collectives of the program in place of MPI.
//
// The drop-in stores a state (CommState) as an attribute of each MPI communicator. The state counts the calls on this
// communicator. When the count reaches a limit, the drop-in builds a communicator of this library for the same ranks.
// When the program frees the MPI communicator, MPI deletes the attribute, and the library's communicator ends.
#include "mpi_drop_in/communicators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/environment.hpp"
#include "base/log.hpp"
#include "base/wait.hpp"
#include "collectives/bootstrap.hpp"
#include "collectives/error.hpp"
#include "communicator/foreign_calls.hpp"
#include "core/tuning.hpp"
#include "device/loader.hpp"
#include "mpi_drop_in/process.hpp"

namespace collectives::drop_in {
namespace {

/// List of the states of all MPI communicators with at least one call. The list is never destroyed, because a program
/// may end without MPI_Finalize.
struct All {
  std::mutex mutex;
  std::unordered_map<const CommState*, std::shared_ptr<CommState>> states;
};
All& all() {
  static All& them = *new All;
  return them;
}

/// Timeout while a communicator of the library is built. The exchanges over MPI ignore this timeout (class OverMpi).
/// Collectives of the program have no deadline, as in MPI.
constexpr std::chrono::minutes kBuilding(1);

int communicator_keyval = MPI_KEYVAL_INVALID;
/// Number of communicators of the library that exist in this process.
std::atomic<int> alive = 0;
/// Number of MPI communicators that were freed. MPI may give the handle of a freed communicator to a new one. If this
/// number has changed, find() does not use the state that it has stored for a handle.
std::atomic<std::uint64_t> gone = 0;

/// Removes the state of a communicator. MPI calls it when the communicator is freed or disconnected.
int forget(MPI_Comm, int, void* value, void*) noexcept {
  All& them = all();
  std::shared_ptr<CommState> last;  // destroyed after the mutex is released; pending operations keep it longer
  const std::lock_guard lock(them.mutex);
  if (const auto found = them.states.find(static_cast<const CommState*>(value)); found != them.states.end()) {
    last = std::move(found->second);
    last->freed();
    them.states.erase(found);
  }
  gone.fetch_add(1, std::memory_order_release);
  return MPI_SUCCESS;
}

/// Blocks until the request of `begin(&request)` has completed. Returns true if MPI reports no error. The wait yields
/// the core. If there are more ranks than cores, an MPI that spins would take the core from the awaited rank.
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

/// Bootstrap of the library's communicator: ranks exchange bytes by collectives of the MPI communicator itself. They
/// can do so because all ranks build the library's communicator in the same call.
///
/// A rank that fails between two exchanges reports its failure in the next exchange, and all other ranks then fail as
/// well. All ranks therefore make the same collectives of MPI.
///
/// Deadlines are ignored. Every rank reaches the next exchange or ends. If it ends, MPI ends the program.
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
  /// Takes part in the last exchange, as a rank that has succeeded. Throws if another rank has failed.
  void succeed() { counts_of_all(0); }
  /// Performs the last exchange of a rank that has failed, unless all ranks know of a failure already.
  void fail() noexcept try {
    if (!over_) counts_of_all(kFailed);
  } catch (const std::exception&) {  // every rank throws in this exchange
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
  bool over_ = false;  ///< All ranks know of a failure, or MPI has failed.
};

/// Returns true if all ranks of `comm` belong to this MPI_COMM_WORLD, whose ranks have agreed on the settings. The
/// result is equal on all ranks. If two worlds are in `comm`, each rank finds a rank of the other world.
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

/// Returns the built-in tuning if all ranks are on one host and the user has not set another. Measuring would take
/// longer than a short program can save. Between hosts it returns nothing, so that the wire is measured.
std::optional<Tuning> tuning_of(OverMpi& ranks) {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  PMPI_Get_processor_name(name, &length);
  const std::vector<std::string> names = ranks.all_gather(name, Deadline::never());
  const bool one_host = std::ranges::count(names, names.front()) == ranks.size();
  try {
    if (one_host && !environment().tuning) return built_in_tuning();
  } catch (const std::exception&) {  // a malformed variable of this rank; the construction reports it to all ranks
  }
  return std::nullopt;
}

/// Returns the minimum of `mine` over all ranks. Returns 0 if MPI fails. Requires that no value is negative.
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

bool CommState::refuse(Kind kind, std::string_view why) noexcept {
  if (!communicator_) return false;
  const std::lock_guard lock(*this);
  CallRefusal{collective_of(kind), has_counts(kind)}.publish(*communicator_, why);
  return true;
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
  // No copy function, because a duplicate is a communicator of its own.
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, forget, &communicator_keyval, nullptr);
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
  if (PMPI_Comm_get_attr(comm, communicator_keyval, &value, &there) != MPI_SUCCESS) return nullptr;
  if (there == 0) {
    const auto made = std::make_shared<CommState>(comm);
    {
      const std::lock_guard lock(all().mutex);
      all().states.emplace(made.get(), made);
    }
    value = made.get();
    PMPI_Comm_set_attr(comm, communicator_keyval, value);
  }
  last = {comm, now, static_cast<CommState*>(value)};
  return last.state;
}

void drop_all() noexcept {
  const std::lock_guard lock(all().mutex);
  for (auto& [address, state] : all().states) state->drop();
  if (communicator_keyval != MPI_KEYVAL_INVALID) PMPI_Comm_free_keyval(&communicator_keyval);
}

}  // namespace collectives::drop_in
