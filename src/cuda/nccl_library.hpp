// Loader of NCCL, NVIDIA's library for collectives between GPUs. This library is not linked to NCCL but loads it at run
// time. One binary therefore runs on machines with and without NCCL.
//
//   std::string why_not;
//   const nccl::Library* library = nccl::find_library(why_not);       // null: why_not names the reason in one line
//   library->check(library->AllReduce(...), "all_reduce #17");        // throws Error{system} with NCCL's own text
#pragma once

#include <nccl.h>

#include <string>

namespace collectives::nccl {

/// Oldest version of NCCL that is used. Version 2.19 is the first one with all functions below, such as those for
/// splitting and for memory.
inline constexpr int kOldest = NCCL_VERSION(2, 19, 0);

/// Converts a result of ncclGetVersion() to text, for example "2.28.9".
std::string version_text(int version);

/// Functions of NCCL that the library needs, by their names without "nccl".
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
/// Functions for memory, which a build of NCCL may lack. The library uses them only if all of them exist.
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
  bool has_memory = false;  ///< Whether the functions for memory exist.
  std::string path;

  /// Throws Error{system} if `result` is an error. The text contains `what`, NCCL's name of the result, and NCCL's last
  /// error text. ncclInProgress is no error.
  void check(ncclResult_t result, const std::string& what, ncclComm_t comm = nullptr) const;
};

/// Loads the library at `path`. Returns null and sets `why_not` if it cannot be loaded, lacks a function, is older than
/// kOldest, or has another major version. The library is never unloaded.
const Library* load_library(const std::string& path, std::string& why_not);

/// Returns NCCL: libnccl.so.2 in the system's library path. Searches for it once.
const Library* find_library(std::string& why_not);

}  // namespace collectives::nccl
