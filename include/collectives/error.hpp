// Error: the exception that the library throws if a call fails. An Error has a code. If they are known, an Error also
// names the operation that failed, and the rank that caused the failure. The codes are:
//
// | code             | the communicator afterwards | what to do                                                |
// | ---------------- | --------------------------- | --------------------------------------------------------- |
// | invalid_argument | usable if all ranks throw   | correct the call                                          |
// | unsupported      | usable if all ranks throw   | choose another backend, type or build                     |
// | mismatch         | broken                      | make the ranks issue the same calls                       |
// | timeout          | broken                      | find the missing rank, which the error names              |
// | peer_lost        | broken                      | restart the lost rank, build a new communicator           |
// | aborted          | broken                      | read the reason: a rank called abort()                    |
// | bootstrap        | was not constructed         | correct the address, port or variable that the text names |
// | system           | see below                   | raise the limit that the text names                       |
//
// On a broken communicator, abort(), explain(), the functions that return its properties, and its destructor still
// work. Memory that the communicator has allocated stays valid. Every call that needs the other ranks throws the first
// error again.
//
// `system` means that the operating system, CUDA, NCCL or MPI has refused a request, or that a user's op threw:
//
// | thrown by                               | ranks that throw        | the communicator afterwards               |
// | --------------------------------------- | ----------------------- | ----------------------------------------- |
// | a collective, test(), wait()            | all                     | broken                                    |
// | the constructor                         | all                     | was not constructed                       |
// | split()                                 | the ranks of that color | usable, unless CUDA or NCCL refused       |
// | allocate(), SharedAllocator             | this rank               | usable                                    |
// | allocate_on_device(), register_memory() | this rank               | usable                                    |
// | TopK::save(), TopK::report()            | this rank               | unchanged; the cause is a GPU that failed |
//
// When the error of a failed operation is thrown, no other rank reads or writes the buffers of the operation any more.
// The program may use and free these buffers. After a failure, they contain:
//
// | buffer                               | contents                                                        |
// | ------------------------------------ | --------------------------------------------------------------- |
// | input, out of place                  | unchanged                                                       |
// | output                               | undefined: partial sums, parts of the result, or the old values |
// | in place                             | undefined like any output; the original values are lost         |
// | any, invalid_argument or unsupported | unchanged, because nothing was sent                             |
//
// There is one exception: a stopped rank may still access the buffers. Ranks of one host can read and write one
// another's buffers directly. They do so in chunks of at most 128 KiB, or of 1 MiB if they only copy. SIGSTOP, a
// debugger or a frozen control group may stop a rank inside a chunk. If the stopped rank ever continues, it first
// finishes the chunk. It may then read inputs of the failed operation, and write correct results into outputs.
//
// A rank whose operation fails waits at most half a second for a stopped rank, and then names the stopped rank in a
// warning. Keep the buffers of the failed operation until the stopped rank has continued or ended.
//
// docs/errors.md shows texts and causes. docs/gpu.md describes buffers in GPU memory, which a GPU may still write.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "collectives/export.hpp"
#include "collectives/types.hpp"

namespace collectives {

enum class Errc : std::uint8_t {
  invalid_argument = 1,
  unsupported,
  mismatch,
  timeout,
  peer_lost,
  aborted,
  bootstrap,
  system,
};

COLLECTIVES_EXPORT std::string_view to_string(Errc) noexcept;

/// Value of a rank that does not exist or is unknown.
inline constexpr Rank kNoRank = -1;

class COLLECTIVES_EXPORT Error : public std::runtime_error {
 public:
  /// Makes an error with the text `what` that rank `rank` throws. `peer`: the rank that caused the error; kNoRank if no
  /// rank did. `operation`: name of the call, such as "all_reduce #17", or empty.
  Error(Errc code, const std::string& what, Rank rank = kNoRank, Rank peer = kNoRank, std::string operation = {});
  ~Error() override;

  Errc code() const noexcept { return code_; }
  Rank rank() const noexcept { return rank_; }
  Rank peer() const noexcept { return peer_; }
  const std::string& operation() const noexcept { return operation_; }

 private:
  Errc code_;
  Rank rank_, peer_;
  std::string operation_;
};

}  // namespace collectives
