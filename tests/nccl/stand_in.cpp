// A library that stands in for NCCL where there is no GPU: ranks are threads of one process, "device" memory is memory,
// and a collective happens when the last rank has asked for it, which the others hear as "in progress" until then.
//
// Built several times: whole; STAND_IN_VERSION: that calls itself so; STAND_IN_LACKS: without ncclCommSplit and
// ncclSend. stand_in_fail("ncclAllReduce") makes the next call of that function fail; it is called by its name, as any
// other is.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "reduction/elements.hpp"

#ifndef STAND_IN_VERSION
#define STAND_IN_VERSION NCCL_VERSION_CODE
#endif

#define STAND_IN extern "C" [[gnu::visibility("default")]]

namespace {

using collectives::DataType;

std::mutex lock;  // of everything here
std::string failing;

bool fails(const char* name) {
  const std::lock_guard guard(lock);
  if (failing != name) return false;
  failing.clear();
  return true;
}
#define FAIL_IF_ASKED(name) \
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

/// What a rank has asked for.
struct Post {
  std::string what;
  const std::byte* input;
  std::byte* output;
  std::size_t count;
  ncclDataType_t type;
  int op, root, peer;
};

struct Clique {
  int size = 0;
  std::vector<std::vector<std::vector<Post>>> posted;  // of each rank: its groups, which happen in turn
  std::vector<std::size_t> done;                       // how many of them have happened, the same for all
  std::map<int, double> factors;                       // of ops that were made
  std::vector<std::pair<int, int>> split;              // color and key of each rank that has come
  std::vector<bool> joined, has_split;
  bool aborted = false;
};

std::map<std::string, std::shared_ptr<Clique>> cliques;  // by id

}  // namespace

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::size_t groups = 0;      // asked for
  ncclComm_t* part = nullptr;  // where the outcome of a split goes
  int color = 0;
  ncclResult_t failed = ncclSuccess;
};

namespace {

thread_local int depth = 0;
thread_local ncclComm_t in_group = nullptr;
thread_local std::vector<Post> group;

template <class T>
void reduce(const std::vector<const std::byte*>& inputs, std::byte* output, std::size_t offset, std::size_t count,
            int op, double factor) {
  using namespace collectives;
  const int ranks = static_cast<int>(inputs.size());
  const ReduceOp which = op == ncclProd  ? ReduceOp::product
                         : op == ncclMin ? ReduceOp::min
                         : op == ncclMax ? ReduceOp::max
                         : op == ncclAvg ? ReduceOp::average
                         : op == ncclSum ? ReduceOp::sum
                                         : ReduceOp::pre_scaled_sum(factor);
  std::vector<T> result(count);
  elements::with_kernel<T>(which, ranks, false, [&](const auto& kernel) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto at = [&](std::size_t rank) { return reinterpret_cast<const T*>(inputs[rank])[offset + i]; };
      auto wide = kernel.term(at(0), true);
      for (std::size_t rank = 1; rank < inputs.size(); ++rank) wide = kernel.combine(wide, kernel.term(at(rank), true));
      result[i] = kernel.result(wide);
    }
  });
  if (count != 0) std::memcpy(output, result.data(), count * sizeof(T));
}

/// One call of every rank.
void perform(const Clique& clique, const std::vector<Post>& posts) {
  const Post& first = posts.front();
  const std::size_t bytes = first.count * collectives::size_of(type_of(first.type));
  std::vector<const std::byte*> inputs;
  std::vector<std::vector<std::byte>> copies;  // in place, inputs are written over
  for (const Post& post : posts) {
    const std::size_t factor = first.what == "ncclReduceScatter" ? posts.size() : 1;
    const bool has_input = first.what != "ncclBroadcast" || &post == &posts[static_cast<std::size_t>(first.root)];
    copies.push_back(has_input && bytes > 0 ? std::vector<std::byte>(post.input, post.input + factor * bytes)
                                            : std::vector<std::byte>());
    inputs.push_back(copies.back().data());
  }
  const auto factor = clique.factors.find(first.op);
  for (std::size_t rank = 0; rank < posts.size(); ++rank) {
    std::byte* const output = posts[rank].output;
    if (first.what == "ncclReduce" && static_cast<int>(rank) != first.root) continue;
    if (first.what == "ncclAllGather") {
      for (std::size_t r = 0; r < posts.size() && bytes > 0; ++r) std::memcpy(output + r * bytes, inputs[r], bytes);
    } else if (first.what == "ncclBroadcast") {
      if (bytes > 0) std::memcpy(output, inputs[static_cast<std::size_t>(first.root)], bytes);
    } else {
      const std::size_t offset = first.what == "ncclReduceScatter" ? rank * first.count : 0;
      collectives::elements::with_type(type_of(first.type), [&](auto element) {
        reduce<decltype(element)>(inputs, output, offset, first.count, first.op,
                                  factor != clique.factors.end() ? factor->second : 1);
      });
    }
  }
}

/// The next group of all ranks, once all have asked for it.
void advance(Clique& clique) {
  const auto ready = [&] {
    return std::ranges::all_of(clique.posted, [&](const auto& groups) { return groups.size() > clique.done[0]; });
  };
  while (!clique.aborted && ready()) {
    const std::size_t turn = clique.done[0]++;
    const std::size_t calls = clique.posted[0][turn].size();
    std::map<std::pair<int, int>, std::vector<std::byte>> sent;
    for (std::size_t rank = 0; rank < clique.posted.size(); ++rank) {
      for (const Post& post : clique.posted[rank][turn]) {
        const std::size_t bytes = post.count * collectives::size_of(type_of(post.type));
        if (post.what == "ncclSend" && bytes > 0) {
          sent[{static_cast<int>(rank), post.peer}].assign(post.input, post.input + bytes);
        }
      }
    }
    for (std::size_t c = 0; c < calls; ++c) {
      const std::string& what = clique.posted[0][turn][c].what;
      if (what == "ncclSend" || what == "ncclRecv") continue;
      std::vector<Post> posts;
      for (auto& groups : clique.posted) posts.push_back(groups[turn][c]);
      perform(clique, posts);
    }
    for (std::size_t rank = 0; rank < clique.posted.size(); ++rank) {
      for (const Post& post : clique.posted[rank][turn]) {
        if (post.what != "ncclRecv") continue;
        const auto& message = sent[{post.peer, static_cast<int>(rank)}];
        if (!message.empty()) std::memcpy(post.output, message.data(), message.size());
      }
    }
  }
}

ncclResult_t post(ncclComm_t comm, Post call) {
  in_group = comm;
  group.push_back(std::move(call));
  if (depth > 0) return ncclSuccess;
  ++depth;
  return ncclGroupEnd();
}

std::shared_ptr<Clique> make_clique(int size) {
  auto clique = std::make_shared<Clique>();
  clique->size = size;
  clique->posted.resize(static_cast<std::size_t>(size));
  clique->done.resize(1);
  clique->joined.resize(static_cast<std::size_t>(size));
  clique->has_split.resize(static_cast<std::size_t>(size));
  clique->split.resize(static_cast<std::size_t>(size));
  return clique;
}

}  // namespace

STAND_IN void stand_in_fail(const char* name) {
  const std::lock_guard guard(lock);
  failing = name;
}

STAND_IN ncclResult_t ncclGetVersion(int* version) {
  FAIL_IF_ASKED("ncclGetVersion");
  *version = STAND_IN_VERSION;
  return ncclSuccess;
}
STAND_IN const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInternalError ? "internal error" : result == ncclRemoteError ? "remote error" : "an error";
}
STAND_IN const char* ncclGetLastError(ncclComm_t) { return "a stand-in was asked to fail"; }

STAND_IN ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  FAIL_IF_ASKED("ncclGetUniqueId");
  static std::atomic<int> next = 0;
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = "stand-in " + std::to_string(next++);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

STAND_IN ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  FAIL_IF_ASKED("ncclCommInitRankConfig");
  const std::lock_guard guard(lock);
  auto& clique = cliques[id.internal];
  if (!clique) clique = make_clique(size);
  clique->joined[static_cast<std::size_t>(rank)] = true;
  *comm = new ncclComm{.clique = clique, .rank = rank};
  return ncclInProgress;
}

STAND_IN ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  FAIL_IF_ASKED("ncclCommCount");
  *count = comm->clique->size;
  return ncclSuccess;
}

STAND_IN ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  FAIL_IF_ASKED("ncclCommGetAsyncError");
  const std::lock_guard guard(lock);
  Clique& clique = *comm->clique;
  *state = ncclSuccess;
  if (comm->failed != ncclSuccess) {
    *state = comm->failed;
  } else if (clique.aborted) {
    *state = ncclRemoteError;
  } else if (!std::ranges::all_of(clique.joined, [](bool here) { return here; })) {
    *state = ncclInProgress;
  } else if (comm->part != nullptr) {
    if (!std::ranges::all_of(clique.has_split, [](bool here) { return here; })) {
      *state = ncclInProgress;
      return ncclSuccess;
    }
    // Everyone has said which; who asks last of all has them all anew.
    std::vector<std::pair<int, int>> members;  // key, rank
    for (int r = 0; r < clique.size; ++r)
      if (clique.split[static_cast<std::size_t>(r)].first == comm->color)
        members.emplace_back(clique.split[static_cast<std::size_t>(r)].second, r);
    std::ranges::sort(members);
    const std::string id =
        "part of " + std::to_string(reinterpret_cast<std::uintptr_t>(&clique)) + " " + std::to_string(comm->color);
    auto& part = cliques[id];
    if (!part) {
      part = make_clique(static_cast<int>(members.size()));
      part->joined.assign(members.size(), true);
    }
    const auto me = std::ranges::find(members, comm->rank, &std::pair<int, int>::second);
    *comm->part = new ncclComm{.clique = part, .rank = static_cast<int>(me - members.begin())};
    comm->part = nullptr;
  } else {
    advance(clique);
    if (clique.done[0] < comm->groups) *state = ncclInProgress;
  }
  return ncclSuccess;
}

STAND_IN ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const std::lock_guard guard(lock);
  if (comm->clique->done[0] < comm->groups) comm->clique->aborted = true;  // others wait for what is unfinished
  delete comm;
  return ncclSuccess;
}

STAND_IN ncclResult_t ncclCommRegister(const ncclComm_t, void* memory, size_t, void** handle) {
  FAIL_IF_ASKED("ncclCommRegister");
  *handle = memory;
  return ncclSuccess;
}
STAND_IN ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  FAIL_IF_ASKED("ncclCommDeregister");
  return ncclSuccess;
}
STAND_IN ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                               ncclScalarResidence_t, ncclComm_t comm) {
  FAIL_IF_ASKED("ncclRedOpCreatePreMulSum");
  const std::lock_guard guard(lock);
  const int made = ncclNumOps + static_cast<int>(comm->clique->factors.size());
  comm->clique->factors[made] =
      type == ncclFloat32 ? static_cast<double>(*static_cast<float*>(scalar)) : *static_cast<double*>(scalar);
  *op = static_cast<ncclRedOp_t>(made);
  return ncclSuccess;
}
STAND_IN ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) {
  FAIL_IF_ASKED("ncclRedOpDestroy");
  return ncclSuccess;
}

STAND_IN ncclResult_t ncclGroupStart() {
  FAIL_IF_ASKED("ncclGroupStart");
  ++depth;
  return ncclSuccess;
}
STAND_IN ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  std::vector<Post> calls = std::exchange(group, {});
  ncclComm_t const comm = std::exchange(in_group, nullptr);
  FAIL_IF_ASKED("ncclGroupEnd");
  if (comm == nullptr) return ncclSuccess;
  const std::lock_guard guard(lock);
  comm->clique->posted[static_cast<std::size_t>(comm->rank)].push_back(std::move(calls));
  ++comm->groups;
  return ncclInProgress;
}

#define CALL(name, ...) \
  FAIL_IF_ASKED(#name); \
  return post(          \
      comm, {#name, static_cast<const std::byte*>(input), static_cast<std::byte*>(output), count, type, __VA_ARGS__})

STAND_IN ncclResult_t ncclAllReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                    ncclComm_t comm, cudaStream_t) {
  CALL(ncclAllReduce, op, 0, 0);
}
STAND_IN ncclResult_t ncclReduceScatter(const void* input, void* output, size_t count, ncclDataType_t type,
                                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
  CALL(ncclReduceScatter, op, 0, 0);
}
STAND_IN ncclResult_t ncclAllGather(const void* input, void* output, size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t) {
  CALL(ncclAllGather, 0, 0, 0);
}
STAND_IN ncclResult_t ncclBroadcast(const void* input, void* output, size_t count, ncclDataType_t type, int root,
                                    ncclComm_t comm, cudaStream_t) {
  CALL(ncclBroadcast, 0, root, 0);
}
STAND_IN ncclResult_t ncclReduce(const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                                 int root, ncclComm_t comm, cudaStream_t) {
  CALL(ncclReduce, op, root, 0);
}
STAND_IN ncclResult_t ncclRecv(void* output, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                               cudaStream_t) {
  const void* const input = nullptr;
  CALL(ncclRecv, 0, 0, peer);
}

#ifndef STAND_IN_LACKS
STAND_IN ncclResult_t ncclSend(const void* input, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                               cudaStream_t) {
  void* const output = nullptr;
  CALL(ncclSend, 0, 0, peer);
}
STAND_IN ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  FAIL_IF_ASKED("ncclCommSplit");
  const std::lock_guard guard(lock);
  const auto self = static_cast<std::size_t>(comm->rank);
  comm->clique->split[self] = {color, key};
  comm->clique->has_split[self] = true;
  *part = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  comm->color = color;
  comm->part = part;
  return ncclInProgress;
}
#endif
