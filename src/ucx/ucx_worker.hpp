// UCX context with one worker, and its settings.
//
// All settings of UCX apply, such as UCX_TLS, UCX_NET_DEVICES and the others that `ucx_info -cf` lists. With the prefix
// COLLECTIVES_ (COLLECTIVES_UCX_TLS) they apply to this library only. This library changes the settings below. It
// changes TLS and KEEPALIVE_INTERVAL only if they have their defaults.
//
// | setting            | here | because                                                                             |
// | ------------------ | ---- | ----------------------------------------------------------------------------------- |
// | TLS                | ^sm  | ranks of one host have the library's own shared memory                              |
// | KEEPALIVE_INTERVAL | 2s   | a wait notices a host that does not answer; inf if there is only TCP, because the   |
// |                    |      | keepalive of TCP works only while UCX sends nothing                                 |
// | TCP_CONN_NB        | y    | connecting to an address without an answer must not exceed the deadline             |
// | TCP_KEEPIDLE       | 2s   | keepalive of TCP: with TCP_KEEPINTVL 1s and TCP_KEEPCNT 3 it takes 3 to 5 s         |
//
// If UCX_LOG_LEVEL has its default "warn", UCX logs nothing in calls of this library. The library reports problems as
// errors and lost peers instead. With any other level, which the user must have set, UCX logs everything.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace collectives {
namespace ucx {

/// Suppresses the log of UCX for calls of this thread while the object lives; see above.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// Returns the text of UCX for a status, for use inside a sentence.
std::string words(ucs_status_t);

/// Throws Error{system} with the text of UCX unless the status is UCS_OK.
void check(ucs_status_t, std::string_view call);

}  // namespace ucx

/// UCX context with one worker. Only one thread may use it at a time. It costs about 2 ms, a few descriptors and 4 MiB.
class UcxWorker {
 public:
  static constexpr std::size_t kAlignment = 64;  // Alignment of payloads in bytes.

  /// Throws Error{system} with the text of UCX.
  UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  ucp_worker_h get() const noexcept { return worker_; }
  /// Returns the address that other ranks need to connect to the worker: a few hundred bytes.
  std::string address() const;
  /// Returns a descriptor that becomes readable at the first event after the worker was armed. Returns -1 if the
  /// devices do not support it.
  int event_fd() const noexcept { return event_fd_; }

  /// Returns whether UCX finds a network device that it drives past the kernel (InfiniBand, RoCE). Without such a
  /// device, UCX itself uses TCP. Opens and closes every device, which takes some milliseconds.
  static bool has_fast_device();
  /// Returns the first result of has_fast_device() in this process.
  static bool on_fast_device();

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace collectives
