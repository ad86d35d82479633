// UCX context with one worker (UCX's object for communication), and the settings of UCX that this library changes.
//
// All settings of UCX that `ucx_info -cf` lists apply, such as UCX_TLS and UCX_NET_DEVICES. With the prefix
// COLLECTIVES_, as in COLLECTIVES_UCX_TLS, a setting applies to this library only. This library changes the settings
// below. It changes TLS and KEEPALIVE_INTERVAL only if the user has not set them.
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
// errors and lost peers instead. With any other level, this library suppresses no message of UCX.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace collectives {
namespace ucx {

/// Suppresses the log of UCX for calls of this thread while the object lives, if UCX_LOG_LEVEL has its default.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// Returns UCX's text for a status, with a small initial letter for use inside a sentence.
std::string words(ucs_status_t);

/// Throws Error{system} with UCX's text for the status, unless it is UCS_OK. `call`: name of the failed call.
void check(ucs_status_t, std::string_view call);

}  // namespace ucx

/// UCX context with one worker. Only one thread may use it at a time. Its construction takes about 2 ms. It holds a few
/// file descriptors and 4 MiB of memory.
class UcxWorker {
 public:
  static constexpr std::size_t kAlignment = 64;  // Alignment of payloads in bytes.

  /// Starts UCX. Throws Error{system} with UCX's text if that fails.
  UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  ucp_worker_h get() const noexcept { return worker_; }
  /// Returns the address that other ranks need to connect to the worker: a few hundred bytes.
  std::string address() const;
  /// Returns a descriptor for ppoll(). It becomes readable at the first event after ucp_worker_arm(). Returns -1 if the
  /// network devices do not support that.
  int event_fd() const noexcept { return event_fd_; }

  /// Returns whether UCX finds a network device that it drives without the kernel (InfiniBand, RoCE). Without such a
  /// device, UCX itself uses TCP. Opens and closes every device, which takes some milliseconds.
  static bool has_fast_device();
  /// Returns has_fast_device(), which is called only once per process.
  static bool on_fast_device();

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace collectives
