// A fake of NCCL, the library of collectives on GPUs, for machines without a GPU. Ranks are threads of one process.
//
// A group of calls becomes an entry of its stream only after ncclCommGetAsyncError() has reported that the group is
// complete. The entry stops the stream until the entries of all ranks have been reached; then they execute together.
// Entries of ranks that disagree never execute, or silently give wrong results if their lengths agree, as with NCCL. If
// the entries never execute, ncclCommAbort() frees the stream of the rank that calls it.
//
// The fake is linked into several libraries: one is whole, two have another version number (fake_nccl_version.cpp), and
// two lack functions (paths.hpp). The header fakes/nccl/fake_nccl.hpp declares the functions by which tests control it.
#include "fakes/nccl/fake_nccl.hpp"

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "reduction/elements.hpp"

extern const int fake_nccl_version;

#define FAKE_NCCL_API extern "C" [[gnu::visibility("default")]]

namespace {

using collectives::DataType;
using collectives::testing::FakeNcclStreams;

std::mutex lock;  // guards everything in this file
std::condition_variable changed;
std::string failing;
FakeNcclStreams streams;
struct Region {
  const void* comm;
  const std::byte* first;
  std::size_t bytes;
};
std::map<void*, Region> registered;  // key: handle
std::size_t in_registered = 0;
std::size_t alive = 0;
bool holding_aborts = false;

bool fails(const char* name) {
  const std::lock_guard guard(lock);
  if (failing != name) return false;
  failing.clear();
  return true;
}
#define FAIL_IF_REQUESTED(name) \
  if (fails(name)) return ncclInternalError

DataType type_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return DataType::f32;
    case ncclFloat64: return DataType::f64;
    case ncclFloat16: return DataType::f16;
    case ncclBfloat16: return DataType::bf16;
    case ncclInt8: return DataType::i8;
    case ncclUint8: return DataType::u8;
    case ncclInt32: return DataType::i32;
    case ncclUint32: return DataType::u32;
    case ncclInt64: return DataType::i64;
    default: return DataType::u64;
  }
}

/// One NCCL call of one rank, as its arguments.
struct Post {
  std::string what;
  const std::byte* input;
  std::byte* output;
  std::size_t count;
  ncclDataType_t type;
  int op, root, peer;
  bool matched = false;  // for a send or receive: its counterpart was found

  bool is(const char* name) const { return what == name; }
  std::size_t bytes() const { return count * collectives::size_of(type_of(type)); }
  // Sizes of buffers in an NCCL communicator of `ranks`.
  std::size_t input_bytes(std::size_t ranks) const { return is("ncclReduceScatter") ? ranks * bytes() : bytes(); }
  std::size_t output_bytes(std::size_t ranks) const { return is("ncclAllGather") ? ranks * bytes() : bytes(); }
  bool has_input(int rank) const { return !is("ncclRecv") && (!is("ncclBroadcast") || rank == root); }
  bool has_output(int rank) const { return !is("ncclSend") && (!is("ncclReduce") || rank == root); }
  bool point_to_point() const { return is("ncclSend") || is("ncclRecv"); }
  /// Returns whether two calls execute together, with right or wrong results.
  bool matches(const Post& other) const { return what == other.what && bytes() == other.bytes() && root == other.root; }
};
using Group = std::vector<Post>;

/// An NCCL communicator: the ranks that are connected, and their calls.
struct CommGroup {
  explicit CommGroup(std::size_t ranks) : members(ranks) {}
  struct Member {
    bool joined = false, has_begun = false, stopped = false;
    std::vector<Group> posted;  // collectives in their order
    std::size_t reached = 0;    // number of collectives that its stream has reached
    std::size_t messages = 0;   // groups of messages that have not been executed
    std::size_t splits = 0;     // splits that it has asked for
  };
  struct Split {
    std::map<int, std::pair<int, int>> said;  // color and key by rank
    std::map<int, std::shared_ptr<CommGroup>> parts;
  };
  std::vector<Member> members;
  std::map<int, double> factors;                                                         // factors of created ops
  std::size_t happened = 0;                                                              // groups of collectives
  std::map<std::pair<int, int>, std::pair<std::deque<Post*>, std::deque<Post*>>> lanes;  // sends and receives by ranks
  std::vector<Split> splits;

  Member& at(int rank) { return members[static_cast<std::size_t>(rank)]; }
  template <class What>
  bool all(What&& what) const {
    return std::ranges::all_of(members, what);
  }
};

std::map<std::string, std::shared_ptr<CommGroup>> comm_groups;  // key: id

}  // namespace

struct ncclComm {
  std::shared_ptr<CommGroup> comm_group;
  int rank = 0, gpu = 0;
  std::optional<std::pair<void*, Group>> begun = {};  // not in its stream yet
  bool asked = false;                                 // state was queried since it began
  ncclComm_t* part = nullptr;                         // place for the result of a split
  bool leaving = false;
  std::shared_ptr<ncclResult_t> failed = std::make_shared<ncclResult_t>(ncclSuccess);

  CommGroup::Member& self() const { return comm_group->at(rank); }
};

namespace {

/// The group of calls that a thread has begun.
struct Begun {
  int depth = 0;
  ncclComm_t comm = nullptr;
  void* stream = nullptr;
  Group calls;
};

/// Returns the group of this thread. A thread_local variable would not do. Any thread may free the thread_local
/// variables of a library that is loaded late, which the thread sanitizer reports as a race.
Begun& begun() {
  static std::mutex& mutex = *new std::mutex;
  static auto& of_threads = *new std::unordered_map<std::thread::id, Begun>;
  const std::lock_guard guard(mutex);
  return of_threads[std::this_thread::get_id()];
}

void reduce(DataType type, const std::vector<const std::byte*>& inputs, std::byte* output, std::size_t offset,
            std::size_t count, int op, double factor) {
  using namespace collectives;
  const int ranks = static_cast<int>(inputs.size());
  const ReduceOp which = op == ncclProd  ? ReduceOp::product
                         : op == ncclMin ? ReduceOp::min
                         : op == ncclMax ? ReduceOp::max
                         : op == ncclAvg ? ReduceOp::average
                         : op == ncclSum ? ReduceOp::sum
                                         : ReduceOp::pre_scaled_sum(factor);
  std::vector<std::byte> result(count * size_of(type));
  elements::with_kernel_for(which, type, ranks, false, [&](const auto& kernel, std::size_t) {
    using T = typename std::remove_cvref_t<decltype(kernel)>::Stored;
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = [&](std::size_t rank) { return reinterpret_cast<const T*>(inputs[rank])[offset + i]; };
      auto wide = kernel.term(at(0), true);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) wide = kernel.combine(wide, kernel.term(at(rank), true));
      const T element = kernel.result(wide);
      std::memcpy(&result[i * sizeof(T)], &element, sizeof(T));
    }
  });
  std::memcpy(output, result.data(), result.size());
}

/// Executes one collective, with the call of each rank.
void perform(const CommGroup& comm_group, const Group& posts) {
  const Post& first = posts.front();
  const std::size_t ranks = posts.size(), bytes = first.bytes();
  if (bytes == 0) return;
  std::vector<std::vector<std::byte>> copies(ranks);  // copies of inputs, which calls in place overwrite
  std::vector<const std::byte*> inputs;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Post& post = posts[rank];
    if (post.has_input(static_cast<int>(rank))) copies[rank].assign(post.input, post.input + post.input_bytes(ranks));
    inputs.push_back(copies[rank].data());
  }
  const auto factor = comm_group.factors.find(first.op);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::byte* const output = posts[rank].output;
    if (!first.has_output(static_cast<int>(rank))) continue;
    if (first.is("ncclAllGather")) {
      for (std::size_t r = 0; r < ranks; ++r) std::memcpy(output + r * bytes, inputs[r], bytes);
    } else if (first.is("ncclBroadcast")) {
      std::memcpy(output, inputs[static_cast<std::size_t>(first.root)], bytes);
    } else {
      const std::size_t offset = first.is("ncclReduceScatter") ? rank * first.count : 0;
      reduce(type_of(first.type), inputs, output, offset, first.count, first.op,
             factor != comm_group.factors.end() ? factor->second : 1);
    }
  }
}

/// Returns whether the collectives of all ranks execute together.
bool agree(const Group& one, const Group& other) {
  return std::ranges::equal(one, other, [](const Post& a, const Post& b) { return a.matches(b); });
}

/// Executes the next group of all ranks, which all streams have reached.
void perform_all(CommGroup& comm_group) {
  std::vector<const Group*> groups;
  for (const CommGroup::Member& member : comm_group.members) groups.push_back(&member.posted[comm_group.happened]);
  if (!std::ranges::all_of(groups, [&](const Group* one) { return agree(*one, *groups[0]); })) return;
  for (std::size_t c = 0; c < groups[0]->size(); ++c) {
    Group posts;
    for (const Group* one : groups) posts.push_back((*one)[c]);
    perform(comm_group, posts);
  }
  ++comm_group.happened;
  changed.notify_all();
}

/// Executes the messages of each pair of ranks in their order.
void match(CommGroup& comm_group, int rank, Group& messages) {
  for (Post& post : messages) {
    auto& [sends, receives] =
        comm_group.lanes[post.is("ncclSend") ? std::pair(rank, post.peer) : std::pair(post.peer, rank)];
    (post.is("ncclSend") ? sends : receives).push_back(&post);
    if (sends.empty() || receives.empty() || sends.front()->bytes() != receives.front()->bytes()) continue;
    if (post.bytes() > 0) std::memcpy(receives.front()->output, sends.front()->input, post.bytes());
    sends.front()->matched = receives.front()->matched = true;
    sends.pop_front();
    receives.pop_front();
  }
  changed.notify_all();
}

/// An entry of a stream: `rank` has reached `messages`, or its next group of collectives.
void perform_entry(CommGroup& comm_group, int rank, Group& messages, ncclResult_t& failed) {
  std::unique_lock held(lock);
  CommGroup::Member& self = comm_group.at(rank);
  if (self.stopped) return;
  if (failing == "in a stream") {
    failing.clear();
    failed = ncclRemoteError;
    changed.wait(held, [&] { return self.stopped; });
    return;
  }
  if (!messages.empty()) {
    match(comm_group, rank, messages);
    changed.wait(held, [&] { return self.stopped || std::ranges::all_of(messages, &Post::matched); });
    if (self.stopped)  // other ranks do not find its messages
      for (auto& [ranks, lane] : comm_group.lanes)
        for (auto* const side : {&lane.first, &lane.second})
          std::erase_if(*side, [&](const Post* post) { return &messages.front() <= post && post <= &messages.back(); });
    --self.messages;
    return;
  }
  const std::size_t turn = self.reached++;
  // A rank that has been aborted touches no memory any more, and no other rank acts for it.
  const auto is_here = [&](const auto& member) { return member.reached > turn && !member.stopped; };
  if (comm_group.happened == turn && comm_group.all(is_here)) perform_all(comm_group);
  changed.wait(held, [&] { return self.stopped || comm_group.happened > turn; });
}

/// Puts the begun calls into their stream.
void enter(ncclComm_t comm) {
  auto& [stream, calls] = *comm->begun;
  std::vector<std::pair<void*, std::size_t>> touched;  // memory that the entry touches
  const std::size_t ranks = comm->comm_group->members.size();
  for (const Post& post : calls) {
    if (post.has_input(comm->rank)) touched.emplace_back(const_cast<std::byte*>(post.input), post.input_bytes(ranks));
    if (post.has_output(comm->rank)) touched.emplace_back(post.output, post.output_bytes(ranks));
  }
  for (const auto& [buffer, bytes] : touched)
    for (const auto& [handle, region] : registered)
      if (region.comm == comm && buffer >= region.first &&
          static_cast<const std::byte*>(buffer) + bytes <= region.first + region.bytes)
        ++in_registered;
  Group messages;
  if (calls.front().point_to_point()) {
    messages = std::move(calls);
    ++comm->self().messages;
  } else {
    comm->self().posted.push_back(std::move(calls));
  }
  streams.put(
      comm->gpu, stream, touched,
      [comm_group = comm->comm_group, rank = comm->rank, failed = comm->failed,
       sent = std::make_shared<Group>(std::move(messages))] { perform_entry(*comm_group, rank, *sent, *failed); });
  comm->begun.reset();
}

/// Returns the part of the last split with the color of `comm`, if all ranks have asked for it. Its order is that of
/// NCCL: by key, then by rank.
ncclComm_t part_of(ncclComm_t comm) {
  CommGroup& comm_group = *comm->comm_group;
  auto& [said, parts] = comm_group.splits[comm->self().splits - 1];
  const int color = said.at(comm->rank).first;
  if (color == NCCL_SPLIT_NOCOLOR) return nullptr;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (const auto& [rank, what] : said)
    if (what.first == color) members.emplace_back(what.second, rank);
  std::ranges::sort(members);
  auto& part = parts[color];
  if (!part) part = std::make_shared<CommGroup>(members.size());
  const auto me = std::ranges::find(members, comm->rank, &std::pair<int, int>::second) - members.begin();
  part->at(static_cast<int>(me)).joined = true;
  ++alive;
  return new ncclComm{.comm_group = part, .rank = static_cast<int>(me), .gpu = comm->gpu};
}

ncclResult_t post(ncclComm_t comm, cudaStream_t stream, Post call) {
  if (comm->begun || comm->part != nullptr) return ncclInvalidArgument;  // earlier calls are not complete
  const std::size_t element = size_of(type_of(call.type));
  for (const std::byte* const buffer : {call.input, static_cast<const std::byte*>(call.output)})
    if (reinterpret_cast<std::uintptr_t>(buffer) % element != 0) return ncclInvalidArgument;
  Begun& here = begun();
  here.comm = comm;
  here.stream = stream;
  here.calls.push_back(std::move(call));
  if (here.depth > 0) return ncclSuccess;
  ++here.depth;
  return ncclGroupEnd();
}

void end(ncclComm_t comm) {
  --alive;
  changed.notify_all();
  delete comm;
}

}  // namespace

FAKE_NCCL_API void fake_nccl_fail(const char* name) {
  const std::lock_guard guard(lock);
  failing = name;
}
FAKE_NCCL_API void fake_nccl_streams(const FakeNcclStreams& made) {
  const std::lock_guard guard(lock);
  streams = made;
}
FAKE_NCCL_API void fake_nccl_hold_aborts(bool hold) {
  const std::lock_guard guard(lock);
  holding_aborts = hold;
  changed.notify_all();
}
FAKE_NCCL_API std::size_t fake_nccl_registered() {
  const std::lock_guard guard(lock);
  return registered.size();
}
FAKE_NCCL_API std::size_t fake_nccl_in_registered() {
  const std::lock_guard guard(lock);
  return in_registered;
}
FAKE_NCCL_API std::size_t fake_nccl_alive() {
  const std::lock_guard guard(lock);
  return alive;
}

FAKE_NCCL_API ncclResult_t ncclGetVersion(int* version) {
  FAIL_IF_REQUESTED("ncclGetVersion");
  *version = fake_nccl_version;
  return ncclSuccess;
}
FAKE_NCCL_API const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInternalError ? "internal error" : result == ncclRemoteError ? "remote error" : "an error";
}
FAKE_NCCL_API const char* ncclGetLastError(ncclComm_t) { return "a stand-in was asked to fail"; }

FAKE_NCCL_API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FAIL_IF_REQUESTED("ncclGetUniqueId");
  static std::atomic<int> next = 0;
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "stand-in " + std::to_string(next++);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                                  ncclConfig_t*) {
  FAIL_IF_REQUESTED("ncclCommInitRankConfig");
  const std::lock_guard guard(lock);
  auto& comm_group = comm_groups[id.internal];
  if (!comm_group) comm_group = std::make_shared<CommGroup>(static_cast<std::size_t>(size));
  comm_group->at(rank).joined = true;
  ++alive;
  *comm = new ncclComm{.comm_group = comm_group, .rank = rank, .gpu = streams.current_gpu()};
  return ncclInProgress;
}

FAKE_NCCL_API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FAIL_IF_REQUESTED("ncclCommGetAsyncError");
  const std::lock_guard guard(lock);
  CommGroup& comm_group = *comm->comm_group;
  *state = *comm->failed;
  if (*state != ncclSuccess) return ncclSuccess;
  *state = ncclInProgress;
  if (!comm_group.all([](const auto& member) { return member.joined; })) return ncclSuccess;
  if (comm->begun) {
    // Completes at the second query, so that a caller that queries only once continues too early. Ranks connect in
    // their first collective, which needs all of them.
    const bool messages = comm->begun->second.front().point_to_point();
    if (!std::exchange(comm->asked, true)) return ncclSuccess;
    if (!messages && !comm_group.all([](const auto& member) { return member.has_begun; })) return ncclSuccess;
    enter(comm);
  } else if (comm->part != nullptr) {
    if (comm_group.splits[comm->self().splits - 1].said.size() < comm_group.members.size()) return ncclSuccess;
    *std::exchange(comm->part, nullptr) = part_of(comm);
  } else if (comm->leaving && (comm_group.happened < comm->self().posted.size() || comm->self().messages > 0)) {
    return ncclSuccess;
  }
  *state = ncclSuccess;
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock guard(lock);
  changed.wait(guard, [] { return !holding_aborts; });
  comm->self().stopped = true;
  std::erase_if(registered, [&](const auto& one) { return one.second.comm == comm; });
  end(comm);
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  FAIL_IF_REQUESTED("ncclCommFinalize");
  const std::lock_guard guard(lock);
  comm->leaving = true;
  return ncclInProgress;
}
FAKE_NCCL_API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::lock_guard guard(lock);
  end(comm);
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclMemAlloc(void** memory, size_t bytes) {
  FAIL_IF_REQUESTED("ncclMemAlloc");
  *memory = streams.take(bytes);
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclMemFree(void* memory) {
  streams.give_back(memory);
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclCommRegister(const ncclComm_t comm, void* memory, size_t bytes, void** handle) {
  FAIL_IF_REQUESTED("ncclCommRegister");
  const std::lock_guard guard(lock);
  if (comm->begun || comm->part != nullptr) return ncclInvalidUsage;
  static std::uintptr_t handles = 0;
  *handle = reinterpret_cast<void*>(++handles);
  registered[*handle] = {comm, static_cast<const std::byte*>(memory), bytes};
  return ncclSuccess;
}
/// Returns an error if the memory is in use or the handle is unknown.
FAKE_NCCL_API ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  FAIL_IF_REQUESTED("ncclCommDeregister");
  const std::lock_guard guard(lock);
  const bool in_use =
      comm->begun || comm->comm_group->happened < comm->self().posted.size() || comm->self().messages > 0;
  const auto found = registered.find(handle);
  if (in_use || found == registered.end() || found->second.comm != comm) return ncclInvalidUsage;
  registered.erase(found);
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                                    ncclScalarResidence_t, ncclComm_t comm) {
  FAIL_IF_REQUESTED("ncclRedOpCreatePreMulSum");
  const std::lock_guard guard(lock);
  const int made = ncclNumOps + static_cast<int>(comm->comm_group->factors.size());
  comm->comm_group->factors[made] =
      type == ncclFloat32 ? static_cast<double>(*static_cast<float*>(scalar)) : *static_cast<double*>(scalar);
  *op = static_cast<ncclRedOp_t>(made);
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  FAIL_IF_REQUESTED("ncclRedOpDestroy");
  return ncclSuccess;
}

FAKE_NCCL_API ncclResult_t ncclGroupStart() {
  FAIL_IF_REQUESTED("ncclGroupStart");
  ++begun().depth;
  return ncclSuccess;
}
FAKE_NCCL_API ncclResult_t ncclGroupEnd() {
  Begun& here = begun();
  if (--here.depth > 0) return ncclSuccess;
  Group calls = std::exchange(here.calls, {});
  ncclComm_t const comm = std::exchange(here.comm, nullptr);
  void* const stream = std::exchange(here.stream, nullptr);
  FAIL_IF_REQUESTED("ncclGroupEnd");
  if (comm == nullptr) return ncclSuccess;
  const std::lock_guard guard(lock);
  if (!calls.front().point_to_point()) comm->self().has_begun = true;
  comm->begun.emplace(stream, std::move(calls));
  comm->asked = false;
  return ncclInProgress;
}

#define CALL(name, ...)     \
  FAIL_IF_REQUESTED(#name); \
  return post(              \
      comm, stream,         \
      {#name, static_cast<const std::byte*>(input), static_cast<std::byte*>(output), count, type, __VA_ARGS__})

FAKE_NCCL_API ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                                         ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  CALL(ncclAllReduce, op, 0, 0);
}
FAKE_NCCL_API ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                                             ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  CALL(ncclReduceScatter, op, 0, 0);
}
FAKE_NCCL_API ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type,
                                         ncclComm_t comm, cudaStream_t stream) {
  CALL(ncclAllGather, 0, 0, 0);
}
FAKE_NCCL_API ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                                         ncclComm_t comm, cudaStream_t stream) {
  CALL(ncclBroadcast, 0, root, 0);
}
FAKE_NCCL_API ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type,
                                      ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  CALL(ncclReduce, op, root, 0);
}
FAKE_NCCL_API ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  const void* const input = nullptr;
  CALL(ncclRecv, 0, 0, peer);
}

FAKE_NCCL_API ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                    cudaStream_t stream) {
  void* const output = nullptr;
  CALL(ncclSend, 0, 0, peer);
}
FAKE_NCCL_API ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  FAIL_IF_REQUESTED("ncclCommSplit");
  const std::lock_guard guard(lock);
  CommGroup& comm_group = *comm->comm_group;
  if (comm_group.splits.size() < ++comm->self().splits) comm_group.splits.emplace_back();
  comm_group.splits[comm->self().splits - 1].said[comm->rank] = {color, key};
  *part = nullptr;
  comm->part = part;
  return ncclInProgress;
}
