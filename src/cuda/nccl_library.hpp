// NCCL as it is found when the program runs: nothing links it, so that one binary runs with and without.
//
//   std::string why_not;
//   const nccl::Library* library = nccl::find_library(why_not);       // null: why_not says in a line what is missing
//   library->check(library->AllReduce(...), "all_reduce #17");        // throws Error{system} with NCCL's own words
#pragma once

#include <nccl.h>

#include <string>

namespace collectives::nccl {

/// 2.19 is the first with everything that is called: splitting, and what has to do with memory.
inline constexpr int kOldest = NCCL_VERSION(2, 19, 0);

/// "2.28.9" of what ncclGetVersion() says.
std::string version_text(int version);

/// The functions called, under their names without "nccl".
#define COLLECTIVES_NCCL_FUNCTIONS(FUNCTION) \
  FUNCTION(GetVersion)                       \
  FUNCTION(GetUniqueId)                      \
  FUNCTION(GetErrorString)                   \
  FUNCTION(GetLastError)                     \
  FUNCTION(CommInitRankConfig)               \
  FUNCTION(CommGetAsyncError)                \
  FUNCTION(CommSplit)                        \
  FUNCTION(CommFinalize)                     \
  FUNCTION(CommDestroy)                      \
  FUNCTION(CommAbort)                        \
  FUNCTION(RedOpCreatePreMulSum)             \
  FUNCTION(RedOpDestroy)                     \
  FUNCTION(AllReduce)                        \
  FUNCTION(ReduceScatter)                    \
  FUNCTION(AllGather)                        \
  FUNCTION(Broadcast)                        \
  FUNCTION(Reduce)                           \
  FUNCTION(Send)                             \
  FUNCTION(Recv)                             \
  FUNCTION(GroupStart)                       \
  FUNCTION(GroupEnd)
/// Those that a build may lack, all or none of which are there.
#define COLLECTIVES_NCCL_MEMORY_FUNCTIONS(FUNCTION) \
  FUNCTION(MemAlloc)                                \
  FUNCTION(MemFree)                                 \
  FUNCTION(CommRegister)                            \
  FUNCTION(CommDeregister)

struct Library {
#define COLLECTIVES_DECLARE(name) decltype(&::nccl##name) name = nullptr;
  COLLECTIVES_NCCL_FUNCTIONS(COLLECTIVES_DECLARE)
  COLLECTIVES_NCCL_MEMORY_FUNCTIONS(COLLECTIVES_DECLARE)
#undef COLLECTIVES_DECLARE
  int version = 0;
  bool has_memory = false;  ///< the memory functions are there
  std::string path;

  /// Throws Error{system}: `what`, what NCCL calls the result, and its last words about it. ncclInProgress is none.
  void check(ncclResult_t result, const std::string& what, ncclComm_t comm = nullptr) const;
};

/// The library at `path`; null and why not where it cannot be loaded, misses a function, is older than kOldest or of
/// another major version. Never unloaded.
const Library* load_library(const std::string& path, std::string& why_not);

/// That of this process, looked for once: libnccl.so.2 where the system finds it.
const Library* find_library(std::string& why_not);

}  // namespace collectives::nccl
