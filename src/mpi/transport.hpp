// Wire over MPI. A wire is a transport between hosts. The wire over MPI sends its messages as point-to-point messages
// of MPI. It therefore works on every network that the MPI library supports.
//
// Frames. A frame is memory for one message. For each peer, there are four frames to send and one to receive. Every
// frame has its own MPI request. If a message arrives before the caller asks for it, MPI stores the message.
//
// Order. Messages with data have one MPI tag. Control messages, such as failure reports, have another MPI tag. MPI
// keeps the order of messages from one sender with equal MPI tags. Data and control messages do not wait for each
// other.
//
// Format. A message consists of one word and the payload. The word is the tag by which this library recognizes the
// call. MPI transmits the length of the message.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/wait.hpp"
#include "collectives/transport.hpp"

namespace collectives {

/// Throws Error{system} with the text of MPI unless `code` is MPI_SUCCESS. `call` names the function, such as
/// "MPI_Isend".
void check_mpi(int code, std::string_view call);

/// Keeps memory alive until the process ends, because MPI may still read or write it.
void keep_for_mpi(std::shared_ptr<void> memory);

class MpiTransport final : public Wire {
 public:
  /// Makes a wire whose rank i is rank members[i] of `*comm`. The calling process is one of the members. Requires that
  /// `*comm` returns errors (MPI_ERRORS_RETURN). `context` distinguishes wires over `*comm` with common members.
  /// Messages with data have the MPI tag 2 * context. Control messages have the next MPI tag.
  MpiTransport(std::shared_ptr<const MPI_Comm> comm, std::vector<Rank> members, std::size_t context,
               std::size_t frame_bytes);
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;
  /// Waits up to 0.1 s for operations in flight. Memory that MPI still uses afterwards is never freed.
  ~MpiTransport() override;

  std::string_view name() const noexcept override { return "mpi"; }
  std::size_t frame_bytes() const noexcept override { return frame_bytes_; }
  std::byte* acquire_frame(Rank to) override;
  void send(Rank to, std::uint64_t tag, std::size_t bytes) override;
  const Message* receive(Rank from) override;
  void release(Rank from) override;
  bool sending() override;
  /// Blocks until MPI has completed the send of every message. MPI then delivers these messages, at the latest in
  /// MPI_Finalize.
  void flush(Deadline) override;
  void post_control(Rank to, std::string_view text) override;
  /// Returns true if MPI was initialized with MPI_THREAD_MULTIPLE.
  bool control_is_thread_safe() const noexcept override { return any_thread_; }
  std::optional<std::pair<Rank, std::string>> poll_control() override;
  void wait_for_event(std::chrono::nanoseconds) override { backoff_.wait(); }

 private:
  static constexpr std::size_t kSendFrames = 4;  // Number of send frames per peer.
  static constexpr std::size_t kAlignment = 64;  // Alignment of payloads in bytes.
  static constexpr std::size_t kMaxControlsInFlight = 256;

  /// Memory of one message, allocated at the first use, and the MPI operation that uses it. The tag word lies directly
  /// before the aligned payload.
  struct Frame {
    std::shared_ptr<std::byte> memory;
    MPI_Request request = MPI_REQUEST_NULL;

    void allocate(std::size_t payload_bytes);
    std::byte* payload() const { return memory.get() + kAlignment; }
    std::byte* message() const { return payload() - sizeof(std::uint64_t); }
  };
  struct Peer {
    std::array<Frame, kSendFrames> sends;
    std::size_t next = 0;  // Send frame to acquire next; the following ones are in flight, oldest first.
    bool acquired = false;
    Frame receive;
    std::optional<Message> message;  // Message that has arrived and is not released.
  };
  struct Control {
    Rank peer = 0;
    std::shared_ptr<std::string> text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<std::size_t>(rank)]; }
  int mpi_rank(Rank rank) const { return members_[static_cast<std::size_t>(rank)]; }

  std::shared_ptr<const MPI_Comm> comm_;
  std::vector<Rank> members_;
  std::size_t frame_bytes_;
  int data_tag_ = 0, control_tag_ = 0;
  std::vector<Peer> peers_;
  Backoff backoff_{kLongestSleepBetweenCalls};
  bool any_thread_ = false;
  std::mutex controls_mutex_;  // Guards controls_out_.
  std::list<Control> controls_out_;
  std::optional<Control> control_in_;
};

}  // namespace collectives
