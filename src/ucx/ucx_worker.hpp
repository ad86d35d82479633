// UCX as this library starts it: a context with one worker, and how it is set.
//
// Settings are UCX's own: UCX_TLS, UCX_NET_DEVICES and all others that `ucx_info -cf` lists apply, and with
// COLLECTIVES_ in front (COLLECTIVES_UCX_TLS) they apply to this library alone. TLS and KEEPALIVE_INTERVAL are changed
// only where the user has left them alone:
//
// | setting            | here | because                                                                             |
// | ------------------ | ---- | ----------------------------------------------------------------------------------- |
// | TLS                | ^sm  | ranks of one host have the library's own shared memory                              |
// | KEEPALIVE_INTERVAL | 2s   | a host that vanishes is noticed while somebody waits for it; inf where there is     |
// |                    |      | only TCP, whose own keepalive works only while UCX does not send anything           |
// | TCP_CONN_NB        | y    | an address that nobody answers must not outlast the deadline                        |
// | TCP_KEEPIDLE       | 2s   | that keepalive: with TCP_KEEPINTVL 1s and TCP_KEEPCNT 3 it takes 3 to 5 s           |
//
// What UCX would log in calls of this library is left out where UCX_LOG_LEVEL is at its default, "warn": it comes out
// as errors and lost peers. Any other level is the user's wish, and so everything is printed.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace collectives {
namespace ucx {

/// While one lives, UCX logs nothing of what this thread has it do; see above.
class Quiet {
 public:
  Quiet();
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
};

/// UCX's words, as part of a sentence.
std::string words(ucs_status_t);

/// Throws Error{system} with UCX's own words, unless all is well.
void check(ucs_status_t, std::string_view call);

}  // namespace ucx

/// A UCX context with one worker, which one thread uses at a time. Costs some 2 ms, a few file descriptors and 4 MiB.
class UcxWorker {
 public:
  static constexpr std::size_t kAlignment = 64;  // of payload

  /// Throws Error{system} with UCX's own words.
  UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;
  ~UcxWorker();

  ucp_worker_h get() const noexcept { return worker_; }
  /// What others need to connect to it: a few hundred bytes.
  std::string address() const;
  /// Readable when something has happened since the worker was armed; -1 where the devices in use cannot tell.
  int event_fd() const noexcept { return event_fd_; }

  /// Whether UCX finds a network device here that it drives past the kernel (InfiniBand, RoCE): without one it is a
  /// detour to TCP. Opens every device for a moment: some milliseconds.
  static bool has_fast_device();
  /// The same, looked for once.
  static bool on_fast_device();

 private:
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
};

}  // namespace collectives
