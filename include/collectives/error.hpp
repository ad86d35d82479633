// One error idiom: exceptions of one type. An Error says what failed, in which operation, and which ranks did it.
//
// | code             | the communicator afterwards | what to do                                             |
// | ---------------- | --------------------------- | ------------------------------------------------------ |
// | invalid_argument | good, nothing was sent      | correct the call                                       |
// | unsupported      | good, nothing was sent      | choose another backend, type or build                  |
// | mismatch         | broken                      | make the ranks issue the same calls                    |
// | timeout          | broken                      | find the missing rank; the error names it              |
// | peer_lost        | broken                      | restart the lost rank, build a new communicator        |
// | aborted          | broken                      | read the reason: some rank called abort()              |
// | bootstrap        | never came to be            | mend the address, the port or the variable named       |
// | system           | broken                      | the operating system refused something; the text says  |
//
// Of a broken communicator only abort(), explain(), its properties, its memory and its destructor remain: every call
// that would need the others throws the same error again.
//
// The buffers of the operations that failed are the program's own again when the error is thrown: no other rank reads
// or writes them from then on, so they may be used, freed and allocated anew. Outputs hold anything, inputs what they
// held. One case is left. Ranks of a host that copy straight between buffers do so in pieces of at most 128 KiB (1 MiB
// where nothing is combined), and one that is stopped in the middle of a piece (by SIGSTOP, a debugger, a frozen
// control group) will finish that piece if it ever goes on: it may read the inputs, and write right results into the
// outputs, of the operation it was stopped in. Who gives up that operation waits half a second for such a rank, then
// names it in a warning. Keep those buffers then until that rank has gone on or ended.
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

/// No rank: an error that has no culprit, or whose culprit is unknown.
inline constexpr Rank kNoRank = -1;

class COLLECTIVES_EXPORT Error : public std::runtime_error {
 public:
  /// `rank`: who throws; `peer`: whose doing it was, kNoRank when nobody's; `operation`: "all_reduce #17" or empty.
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
